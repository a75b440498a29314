// The weight program over checkpoints, and what a checkpoint can get wrong.
#include "SafetensorsFile.h"
#include "TestModel.h"

#include "core/LoadedModule.h"
#include "core/ResidentWeights.h"
#include "cpu/WeightKernels.h"
#include "prefill/checkpoint/FloatConversion.h"
#include "prefill/checkpoint/RandomWeights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <cmath>
#include <cstring>

using namespace prefill;
using namespace prefill::test;
using testing::HasSubstr;

namespace {

/// The test module with a weight of the given source appended; its launches do
/// not use it, but it is resident and can be looked at.
class ProgramTest : public testing::Test {
protected:
  ProgramTest() : file(makeTestModule()) { file.plans[0]->weights.clear(); }

  template <typename Source>
  uint32_t add(std::vector<int64_t> shape, Source source, bool resident,
               module::DType dtype = module::DType::f32) {
    auto weight = std::make_unique<module::WeightT>();
    weight->name = "w" + std::to_string(file.plans[0]->weights.size());
    weight->shape = std::move(shape);
    weight->dtype = dtype;
    weight->source.Set(std::move(source));
    weight->resident = resident;
    file.plans[0]->weights.push_back(std::move(weight));
    return static_cast<uint32_t>(file.plans[0]->weights.size() - 1);
  }
  uint32_t addTensor(const std::string &name, std::vector<int64_t> shape) {
    module::CheckpointSourceT source;
    source.name = name;
    return add(std::move(shape), source, false);
  }
  uint32_t addPack(uint32_t input, int panelN, int kPack, int groupN,
                   std::vector<int64_t> shape,
                   module::DType dtype = module::DType::f32) {
    module::PackSourceT pack;
    pack.input = input;
    pack.panel_n = panelN;
    pack.k_pack = kPack;
    pack.group_n = groupN;
    return add(std::move(shape), pack, true, dtype);
  }

  /// Loads with random weights of seed 5 and returns the bytes of a weight.
  std::vector<uint8_t> evaluate(uint32_t weight, int threads = 1) {
    file.plans[0]
        ->schedules[0]
        ->launches.clear(); // they name weights that are gone
    std::vector<uint8_t> bytes = serialize(file);
    auto device = rt::Device::create("cpu", threads);
    EXPECT_TRUE(device);
    auto loaded =
        rt::LoadedModule::loadMemory(**device, bytes.data(), bytes.size());
    EXPECT_TRUE(loaded) << loaded.error().message;
    std::vector<uint64_t> progress;
    auto weights = rt::ResidentWeights::load(
        **loaded, rt::RandomSource(5),
        [&](const char *, uint64_t done, uint64_t total) {
          EXPECT_TRUE(progress.empty() || done >= progress.back());
          EXPECT_LE(done, total);
          progress.push_back(done);
        });
    EXPECT_TRUE(weights) << weights.error().message;
    EXPECT_EQ(progress.back(), (*weights)->bytes());
    uint64_t size =
        file.plans[0]->weights[weight]->dtype == module::DType::f32 ? 4 : 2;
    for (int64_t extent : file.plans[0]->weights[weight]->shape)
      size *= extent;
    const auto *data =
        reinterpret_cast<const uint8_t *>((*weights)->data(weight));
    return {data, data + size};
  }
  std::vector<float> evaluateFloats(uint32_t weight, int threads = 1) {
    std::vector<uint8_t> bytes = evaluate(weight, threads);
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  module::ModuleT file;
};

TEST_F(ProgramTest, PackPutsRowNIntoColumnN) {
  // Q|K|V-like: N = 7 in groups of 3 (3 + 3 + 1), panels of 2, K = 5 in pairs.
  uint32_t matrix = addTensor("m", {7, 5});
  uint32_t pack = addPack(matrix, 2, 2, 3, {2 + 2 + 1, 3, 2, 2});
  std::vector<float> values = evaluateFloats(pack);
  rt::RandomTensor m(5, "m", {7, 5});
  // Rows of the panels: {0,1} {2,-} {3,4} {5,-} {6,-}; - is padding.
  int rowOf[5][2] = {{0, 1}, {2, -1}, {3, 4}, {5, -1}, {6, -1}};
  for (int panel = 0; panel < 5; ++panel)
    for (int kb = 0; kb < 3; ++kb)
      for (int n = 0; n < 2; ++n)
        for (int kk = 0; kk < 2; ++kk) {
          int row = rowOf[panel][n], k = kb * 2 + kk;
          float expected = row >= 0 && k < 5 ? m[row * 5 + k] : 0;
          EXPECT_EQ(values[((panel * 3 + kb) * 2 + n) * 2 + kk], expected)
              << panel << " " << kb << " " << n << " " << kk;
        }
}

TEST_F(ProgramTest, PackOfLongRows) {
  // Longer than the runs in which rows are stored.
  uint32_t matrix = addTensor("m", {3, 1001});
  for (int kPack : {1, 2, 4}) {
    int64_t blocks = (1001 + kPack - 1) / kPack;
    uint32_t pack = addPack(matrix, 4, kPack, 3, {1, blocks, 4, kPack});
    std::vector<float> values = evaluateFloats(pack);
    rt::RandomTensor m(5, "m", {3, 1001});
    for (int n = 0; n < 3; ++n)
      for (int k = 0; k < 1001; ++k)
        ASSERT_EQ(values[(k / kPack * 4 + n) * kPack + k % kPack],
                  m[n * 1001 + k]);
  }
}

// Blocks of rows and pieces of a row, whole ones and what is left of both.
TEST_F(ProgramTest, PackInBlocksAndPieces) {
  constexpr int64_t N = 70, K = 2503, panelN = 32;
  uint32_t matrix = addTensor("m", {N, K}), gain = addTensor("norm", {K});
  module::ScaleColumnsSourceT scale;
  scale.input = matrix;
  scale.gain = gain;
  uint32_t scaled = add({N, K}, scale, false);
  rt::RandomTensor m(5, "m", {N, K}), g(5, "norm", {K});
  for (module::DType dtype : {module::DType::f32, module::DType::bf16})
    for (int64_t kPack : {1, 2, 4}) {
      int64_t steps = (K + kPack - 1) / kPack;
      uint32_t pack = addPack(scaled, panelN, static_cast<int>(kPack), N,
                              {3, steps, panelN, kPack}, dtype);
      std::vector<uint8_t> bytes = evaluate(pack, 2);
      for (int64_t n = 0; n < 3 * panelN; ++n)
        for (int64_t k = 0; k < steps * kPack; ++k) {
          float expected = n < N && k < K ? m[n * K + k] * g[k] : 0;
          int64_t at =
              ((n / panelN * steps + k / kPack) * panelN + n % panelN) * kPack +
              k % kPack;
          uint32_t found = 0, wanted = std::bit_cast<uint32_t>(expected);
          if (dtype == module::DType::bf16) {
            wanted = rt::floatToBf16(expected);
            std::memcpy(&found, &bytes[at * 2], 2);
          } else {
            std::memcpy(&found, &bytes[at * 4], 4);
          }
          ASSERT_EQ(found, wanted) << n << " " << k << " k_pack " << kPack;
        }
    }
}

TEST(WeightKernels, GiveTheSameBitsOnEveryCPU) {
  // Every bf16 number, and f32 numbers around every tie between two of them.
  std::vector<uint16_t> all(65536);
  std::vector<float> near;
  for (uint32_t bits = 0; bits < all.size(); ++bits) {
    all[bits] = static_cast<uint16_t>(bits);
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      near.push_back(std::bit_cast<float>(bits << 16 | low));
  }
  const auto count = static_cast<int64_t>(near.size());
  std::vector<const rt::WeightKernels *> kernels = rt::supportedWeightKernels();
  EXPECT_EQ(kernels.back(), &rt::weightKernels());
  for (const rt::WeightKernels *variant : kernels) {
    std::vector<float> widened(all.size());
    variant->bf16ToF32(reinterpret_cast<const std::byte *>(all.data()),
                       static_cast<int64_t>(all.size()), widened.data());
    for (uint32_t bits = 0; bits < all.size(); ++bits)
      ASSERT_EQ(std::bit_cast<uint32_t>(widened[bits]), bits << 16);
    std::vector<uint16_t> rounded(near.size());
    variant->f32ToBf16(near.data(), count, rounded.data());
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(rounded[i], rt::floatToBf16(near[i])) << i;
    // Odd addresses and counts, nothing written behind the end.
    std::vector<std::byte> odd(2 * 101 + 1);
    std::memcpy(odd.data() + 1, all.data() + 16000, 2 * 101);
    std::vector<float> out(102, -1), gain(101, 3);
    variant->bf16ToF32(odd.data() + 1, 101, out.data());
    variant->scale(gain.data(), 101, out.data());
    for (int i = 0; i < 101; ++i)
      ASSERT_EQ(out[i], 3 * rt::bf16ToFloat(static_cast<uint16_t>(16000 + i)));
    EXPECT_EQ(out[101], -1);
    for (int64_t units : {1, 3, 4, 67}) {
      const int64_t pitch = 4 * 67 + 8, stride = 128;
      std::vector<uint32_t> rows(16 * pitch / 4), block(67 * stride / 4, 7);
      for (size_t i = 0; i < rows.size(); ++i)
        rows[i] = static_cast<uint32_t>(i * 2654435761u);
      variant->transpose(reinterpret_cast<const std::byte *>(rows.data()),
                         pitch, units,
                         reinterpret_cast<std::byte *>(block.data()), stride);
      for (int64_t i = 0; i < 67; ++i)
        for (int64_t n = 0; n < 32; ++n)
          ASSERT_EQ(block[i * stride / 4 + n],
                    i < units && n < 16 ? rows[n * pitch / 4 + i] : 7u);
    }
  }
}

TEST_F(ProgramTest, ConcatScaleInterleave) {
  uint32_t a = addTensor("a", {3, 4}), b = addTensor("b", {2, 4}),
           gain = addTensor("norm", {4});
  module::ConcatSourceT concat;
  concat.inputs = {a, b};
  uint32_t joined = add({5, 4}, concat, false);
  module::ScaleColumnsSourceT scale;
  scale.input = joined;
  scale.gain = gain;
  uint32_t scaled = add({5, 4}, scale, true);
  module::InterleaveSourceT interleave;
  interleave.inputs = {scaled, joined};
  interleave.granularity = 2;
  uint32_t result = add({12, 4}, interleave, true);

  rt::RandomTensor ta(5, "a", {3, 4}), tb(5, "b", {2, 4}), tg(5, "norm", {4});
  auto plain = [&](int row, int k) {
    return row < 3 ? ta[row * 4 + k] : tb[(row - 3) * 4 + k];
  };
  std::vector<float> scaledValues = evaluateFloats(scaled);
  std::vector<float> values = evaluateFloats(result);
  // Runs of two: s0 s1 j0 j1 s2 s3 j2 j3 s4 0 j4 0.
  int rowOf[12] = {0, 1, 0, 1, 2, 3, 2, 3, 4, -1, 4, -1};
  for (int k = 0; k < 4; ++k) {
    for (int row = 0; row < 5; ++row)
      EXPECT_EQ(scaledValues[row * 4 + k], plain(row, k) * tg[k]);
    for (int row = 0; row < 12; ++row) {
      float expected = rowOf[row] < 0 ? 0 : plain(rowOf[row], k);
      if (row % 4 < 2)
        expected *= tg[k];
      EXPECT_EQ(values[row * 4 + k], expected) << row;
    }
  }
}

TEST_F(ProgramTest, RanksOneConcatenateAndInterleaveToo) {
  uint32_t a = addTensor("a.bias", {3}), b = addTensor("b.bias", {3});
  module::ConcatSourceT concat;
  concat.inputs = {a, b};
  uint32_t joined = add({6}, concat, true);
  module::InterleaveSourceT interleave;
  interleave.inputs = {a, b};
  interleave.granularity = 2;
  uint32_t mixed = add({8}, interleave, true);
  rt::RandomTensor ta(5, "a.bias", {3}), tb(5, "b.bias", {3});
  EXPECT_EQ(evaluateFloats(joined),
            (std::vector<float>{ta[0], ta[1], ta[2], tb[0], tb[1], tb[2]}));
  EXPECT_EQ(
      evaluateFloats(mixed),
      (std::vector<float>{ta[0], ta[1], tb[0], tb[1], ta[2], 0, tb[2], 0}));
}

TEST_F(ProgramTest, RoundsOnceAfterAllTransforms) {
  uint32_t matrix = addTensor("m", {8, 16}), gain = addTensor("norm", {16});
  module::ScaleColumnsSourceT scale;
  scale.input = matrix;
  scale.gain = gain;
  // The intermediate is bf16 on paper; its values still are f32 on the way.
  uint32_t scaled = add({8, 16}, scale, false, module::DType::bf16);
  scale.input = scaled;
  uint32_t twice = add({8, 16}, scale, false, module::DType::bf16);
  uint32_t pack = addPack(twice, 8, 2, 8, {1, 8, 8, 2}, module::DType::bf16);
  std::vector<uint8_t> bytes = evaluate(pack);
  rt::RandomTensor m(5, "m", {8, 16}), g(5, "norm", {16});
  int roundedTwice = 0;
  for (int n = 0; n < 8; ++n)
    for (int k = 0; k < 16; ++k) {
      uint16_t stored;
      std::memcpy(&stored, &bytes[((k / 2 * 8 + n) * 2 + k % 2) * 2], 2);
      float once = m[n * 16 + k] * g[k];
      EXPECT_EQ(stored, rt::floatToBf16(once * g[k]));
      roundedTwice +=
          stored !=
          rt::floatToBf16(rt::bf16ToFloat(rt::floatToBf16(once)) * g[k]);
    }
  EXPECT_GT(roundedTwice, 0) << "the test cannot tell";
}

TEST_F(ProgramTest, RopeTableHoldsCosinesThenSines) {
  module::RopeTableSourceT rope;
  rope.inv_freq = {1.0f, 0.1f, 0.0001f};
  // Angles of late positions are those of f32 arithmetic, no coarser.
  constexpr int64_t positions = 131073;
  rope.max_position = positions;
  file.max_seq = positions;
  *file.kv_cache = module::KVCacheSpec(module::KVLayout::contiguous,
                                       module::DType::f32, 2, 8, 8, positions);
  uint32_t table = add({positions, 6}, rope, true);
  std::vector<float> values = evaluateFloats(table, 2);
  for (int position : {0, 1, 17, 4999, 16384, 16385, 40001, 131071, 131072})
    for (int i = 0; i < 3; ++i) {
      float angle = float(position) * rope.inv_freq[i];
      EXPECT_EQ(values[position * 6 + i], float(std::cos(double(angle))));
      EXPECT_EQ(values[position * 6 + 3 + i], float(std::sin(double(angle))));
    }
}

TEST(SharedWeights, LieWhereTheOthersDo) {
  module::ModuleT file = makeTestModule();
  auto device = rt::Device::create("cpu", 1);
  ASSERT_TRUE(device);
  auto load = [&] {
    std::vector<uint8_t> bytes = serialize(file);
    auto loaded =
        rt::LoadedModule::loadMemory(**device, bytes.data(), bytes.size());
    EXPECT_TRUE(loaded) << loaded.error().message;
    return std::move(*loaded);
  };
  auto first = load(), second = load();
  auto weights =
      rt::ResidentWeights::load(*first, rt::RandomSource(5), nullptr);
  ASSERT_TRUE(weights);
  auto shared = rt::ResidentWeights::share(*second, **weights);
  ASSERT_TRUE(shared) << shared.error().message;
  EXPECT_EQ(&(*shared)->module(), second.get());
  EXPECT_EQ((*shared)->bytes(), (*weights)->bytes());
  for (uint32_t i = 0; i < file.plans[0]->weights.size(); ++i)
    EXPECT_EQ((*shared)->address(i), (*weights)->address(i));

  file.plans[0]->weights[1]->name += "x";
  auto other = load();
  auto refused = rt::ResidentWeights::share(*other, **weights);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("they differ in weight '" +
                        file.plans[0]->weights[1]->name + "'"));
}

TEST_F(ProgramTest, ThreadsDoNotChangeTheResult) {
  uint32_t matrix = addTensor("m", {333, 129});
  uint32_t pack =
      addPack(matrix, 16, 2, 100, {24, 65, 16, 2}, module::DType::bf16);
  std::vector<uint8_t> one = evaluate(pack, 1);
  EXPECT_EQ(one, evaluate(pack, 3));
}

// ---- Checkpoints.

class CheckpointTest : public testing::Test {
protected:
  CheckpointTest() {
    directory.write("config.json", checkpointConfig());
    directory.write("model.safetensors", checkpointFile(7));
  }

  std::string load() {
    prefill_weights *weights = nullptr;
    prefill_status status = prefill_weights_load(
        run.module, directory.path().c_str(), nullptr, nullptr, &weights);
    prefill_weights_destroy(weights);
    return status == PREFILL_OK ? "" : prefill_last_error();
  }
  std::string
  loadEdited(const std::function<void(std::vector<TestTensor> &)> &edit) {
    directory.write("model.safetensors", checkpointFile(7, edit));
    return load();
  }

  TestRun run;
  TemporaryDirectory directory;
};

TEST_F(CheckpointTest, Loads) { EXPECT_EQ(load(), ""); }

TEST_F(CheckpointTest, MissingTensor) {
  EXPECT_THAT(
      loadEdited([](auto &tensors) { tensors.erase(tensors.begin() + 2); }),
      HasSubstr("tensor 'model.layers.0.norm.weight' is missing"));
}

TEST_F(CheckpointTest, WrongShapeNamesBoth) {
  EXPECT_THAT(
      loadEdited(
          [](auto &tensors) { tensors[0].shape = {testHidden, testVocab}; }),
      HasSubstr("tensor 'model.embed_tokens.weight' has shape [32, 13], "
                "but the module expects [13, 32]"));
}

TEST_F(CheckpointTest, UnexpectedTensorsAreNamed) {
  auto add = [](const char *name) {
    return [=](std::vector<TestTensor> &tensors) {
      tensors.push_back({name, {1}, {0}});
    };
  };
  EXPECT_THAT(loadEdited(add("model.layers.2.linear.weight")),
              HasSubstr("1 tensors that the module does not read: "
                        "'model.layers.2.linear.weight'"));
  EXPECT_THAT(loadEdited([](auto &tensors) {
                for (int i = 0; i < 5; ++i)
                  tensors.push_back({"x" + std::to_string(i), {1}, {0}});
              }),
              HasSubstr("5 tensors that the module does not read: 'x0', 'x1', "
                        "'x2', ..."));
  EXPECT_EQ(loadEdited(add("model.layers.0.self_attn.rotary_emb.inv_freq")),
            "");
  // The module's lm_head is tied to the embedding: it may be stored twice.
  EXPECT_EQ(loadEdited([](auto &tensors) {
              TestTensor head = tensors[0];
              head.name = "lm_head.weight";
              tensors.push_back(head);
            }),
            "");
  EXPECT_THAT(loadEdited(add("lm_head.weight")),
              HasSubstr("'lm_head.weight' differs from "
                        "'model.embed_tokens.weight'"));
}

TEST_F(CheckpointTest, Dtypes) {
  // One tensor as BF16 and F16; the values of the generator are bf16 numbers.
  rt::RandomTensor gain(7, "model.layers.0.norm.weight", {testHidden});
  auto rewrite = [&](const std::string &dtype, auto convert) {
    std::string file = checkpointFile(7);
    // Replace by hand: the layout of the file is embed, linear, norm, ...
    uint64_t headerSize;
    std::memcpy(&headerSize, file.data(), 8);
    std::string header = file.substr(8, headerSize),
                data = file.substr(8 + headerSize);
    size_t begin = 4 * (testVocab * testHidden + testHidden * testHidden);
    std::string converted;
    for (int64_t i = 0; i < testHidden; ++i) {
      uint16_t bits = convert(gain[i]);
      converted.append(reinterpret_cast<char *>(&bits), 2);
    }
    data.replace(begin, 4 * testHidden, converted);
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(header);
    for (auto &[name, entry] : json.items()) {
      if (name == "model.layers.0.norm.weight")
        entry["dtype"] = dtype;
      for (auto &offset : entry["data_offsets"])
        if (offset.template get<size_t>() > begin)
          offset = offset.template get<size_t>() - 2 * testHidden;
    }
    directory.write("model.safetensors", safetensorsFile(json.dump(), data));
  };
  auto logits = [&] {
    prefill_weights *weights = nullptr;
    EXPECT_EQ(prefill_weights_load(run.module, directory.path().c_str(),
                                   nullptr, nullptr, &weights),
              PREFILL_OK)
        << prefill_last_error();
    prefill_session *session = nullptr;
    EXPECT_EQ(prefill_kv_cache_truncate(run.cache, 0, 0), PREFILL_OK);
    EXPECT_EQ(prefill_session_create(run.module, weights, run.cache, &session),
              PREFILL_OK);
    std::vector<float> row(testVocab);
    int32_t tokens[] = {1, 2, 3};
    EXPECT_EQ(prefill_session_prefill(session, tokens, 3, 0, row.data()),
              PREFILL_OK);
    prefill_session_destroy(session);
    prefill_weights_destroy(weights);
    return row;
  };
  std::vector<float> expected = logits();
  EXPECT_EQ(expected, TestRun().prefill({1, 2, 3}));
  rewrite("BF16", rt::floatToBf16);
  EXPECT_EQ(logits(), expected);
  rewrite("F16", rt::floatToF16); // 1 +- 0.35 in bf16 is exact in f16
  EXPECT_EQ(logits(), expected);
  rewrite("I16", rt::floatToF16);
  EXPECT_THAT(load(), HasSubstr("has dtype I16, expected F32, BF16 or F16"));
}

TEST_F(CheckpointTest, ConfigMustAgree) {
  auto withConfig = [&](const std::string &config) {
    directory.write("config.json", config);
    return load();
  };
  EXPECT_EQ(withConfig("{}"), "");
  EXPECT_THAT(withConfig(R"({"model_type":"qwen2"})"),
              HasSubstr("model_type is 'qwen2', but the module was compiled "
                        "for 'llama'"));
  EXPECT_THAT(withConfig(R"({"vocab_size":14})"),
              HasSubstr("vocab_size is '14', but the module was compiled for "
                        "13"));
  EXPECT_THAT(withConfig(R"({"num_key_value_heads":"two"})"),
              HasSubstr("num_key_value_heads is '\"two\"'"));
  EXPECT_THAT(withConfig("{"), HasSubstr("config.json': invalid JSON"));
  EXPECT_THAT(withConfig("[]"), HasSubstr("not a JSON object"));
  std::filesystem::remove(directory.path() + "/config.json");
  EXPECT_THAT(load(), HasSubstr("cannot open"));
}

} // namespace
