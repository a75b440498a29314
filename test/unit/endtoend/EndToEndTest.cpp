// Compiled modules against transformers' logits and against themselves: every
// way to run a prompt gives the same bits.
#include "WaysToRun.h"
#include <algorithm>
#include <gtest/gtest.h>

using namespace prefill::test;

namespace {

// f32 against transformers; test/golden/README.md derives it.
constexpr double kTolerance = 1e-5;

double allowedError(const CompiledModel &model, const std::string &dtype,
                    int64_t length) {
  return dtype == "f32" ? kTolerance : 2 * model.goldenError(dtype, length);
}

/// GoogleTest wants names of letters, digits and underscores.
std::string testName(std::string name) {
  for (char &c : name)
    if (!isalnum(static_cast<unsigned char>(c)))
      c = '_';
  return name;
}

struct Variant {
  const char *model, *dtype, *layout;
};

void PrintTo(const Variant &variant, std::ostream *os) {
  *os << variant.model << " " << variant.dtype << " " << variant.layout;
}

class EndToEnd : public testing::TestWithParam<Variant> {
protected:
  CompiledModel model{GetParam().model, GetParam().dtype, GetParam().layout};
};

TEST_P(EndToEnd, PrefillThenDecodeIsThePromptInOneCall) {
  for (int64_t length : {2, 65, 129}) {
    std::vector<int32_t> tokens = model.tokens(length);
    Logits whole = model.run().prefill(tokens);
    EXPECT_LT(relativeError(whole, model.golden(length)),
              allowedError(model, GetParam().dtype, length));
    // One prefill and decode steps; all decode steps; even and odd chunks.
    for (const std::vector<size_t> &sizes :
         {std::vector<size_t>{size_t(length) - 1, 1},
          {1},
          {64, 1},
          {7},
          {16},
          {33, 50, 1}})
      EXPECT_EQ(inPieces(model, tokens, sizes), whole)
          << length << " tokens, first piece " << sizes[0];
  }
}

TEST_P(EndToEnd, ChunksWriteTheCacheOfTheWholePrompt) {
  std::vector<int32_t> tokens = model.tokens(129);
  const prefill_module_info &info = model.info();
  size_t elements = 129 * info.num_kv_heads * info.head_dim;
  PromptRun whole = model.run(), chunked = model.run();
  whole.prefill(tokens);
  for (size_t begin = 0; begin < tokens.size(); begin += 50)
    chunked.prefill({tokens.begin() + begin,
                     tokens.begin() + std::min(begin + 50, tokens.size())});
  for (int64_t layer = 0; layer < info.num_layers; ++layer) {
    std::vector<float> keys[2], values[2];
    for (int i = 0; i < 2; ++i) {
      keys[i].resize(elements);
      values[i].resize(elements);
      check(prefill_kv_cache_read((i ? chunked : whole).cache.get(), layer, 0,
                                  keys[i].data(), values[i].data()),
            "read");
    }
    EXPECT_EQ(keys[0], keys[1]) << "layer " << layer;
    EXPECT_EQ(values[0], values[1]) << "layer " << layer;
  }
}

TEST_P(EndToEnd, PoisonDoesNotMatter) {
  expectPoisonDoesNotMatter(model, {1, 3, 5, 63, 64, 65, 129}, 3);
}

TEST_P(EndToEnd, ASequenceDoesNotSeeItsBatch) {
  expectSequencesDoNotSeeTheirBatch(model);
}

TEST_P(EndToEnd, EveryLengthIsItsRowOfALongerPrompt) {
  constexpr int64_t longest = 600;
  std::vector<int32_t> tokens;
  for (int32_t token : model.tokens(300))
    tokens.insert(tokens.end(), {token, (token * 7 + 1) % 128});
  // Every length below three tiles, then those around tile edges.
  std::vector<int64_t> lengths;
  for (int64_t length = 1; length <= longest; ++length)
    if (length <= 200 || std::min(length % 64, 64 - length % 64) <= 2)
      lengths.push_back(length);
  expectRowsAreTheirPrompts(model, tokens, lengths);
}

// What `prefill-opt --explain` predicts is what the runtime counts.
TEST_P(EndToEnd, MemoryIsAsPredicted) {
  MemoryPrediction predicted = model.predictedMemory();
  constexpr int threads = 2; // CompiledModel's default
  for (int64_t length : {1, 9, 64, 300}) {
    PromptRun run = model.run();
    run.prefill(model.tokens(length));
    prefill_memory counted;
    check(prefill_session_memory(run.session.get(), &counted), "memory");
    int64_t rows = length;
    EXPECT_EQ(counted.weights_bytes, predicted.weights);
    EXPECT_LE(counted.activation_peak_bytes,
              predicted.activationPerToken * rows + predicted.activationPerRow);
    // The prediction counts whole cache lines for the last buffer of a row.
    EXPECT_GE(counted.activation_peak_bytes,
              0.9 * predicted.activationPerToken * rows);
    EXPECT_EQ(counted.kv_cache_bytes % predicted.kvPerToken, 0u);
    EXPECT_GE(counted.kv_cache_bytes, predicted.kvPerToken * length);
    uint64_t metadata = 16 * rows + 4 + 4 * (length + 1) + 512;
    EXPECT_LE(counted.temporaries_bytes,
              predicted.scratchPerThread * threads + metadata)
        << length << " tokens";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, EndToEnd,
    testing::Values(Variant{"llama-gqa3", "f32", "contiguous"},
                    Variant{"llama-gqa3", "bf16", "head_major"},
                    Variant{"llama-gqa3", "f32", "paged_nhd:16"},
                    Variant{"qwen3", "f32", "head_major"},
                    Variant{"qwen3", "bf16", "paged_nhd:16"},
                    Variant{"llama-f16", "f16", "contiguous"},
                    Variant{"mistral-window", "f32", "paged_nhd:64"},
                    Variant{"mistral-window", "bf16", "contiguous"},
                    Variant{"llama-gqa3", "bf16", "paged_vnni"},
                    Variant{"qwen3", "f32", "paged_vnni"},
                    Variant{"mistral-window", "bf16", "paged_vnni"},
                    Variant{"llama-gqa3", "f32+int8", "contiguous"},
                    Variant{"llama-gqa3", "bf16+int8", "paged_vnni"},
                    Variant{"qwen3", "f32+int8", "head_major"},
                    Variant{"mistral-window", "bf16+int8", "paged_nhd:64"}),
    [](const testing::TestParamInfo<Variant> &info) {
      return testName(std::string(info.param.model) + "_" + info.param.dtype +
                      "_" + info.param.layout);
    });

/// Every instruction set that this CPU has, whichever it would choose.
class IsaVariant
    : public testing::TestWithParam<std::tuple<const char *, const char *>> {
protected:
  // What this CPU cannot run is a skip with a reason, not a pass.
  void SetUp() override {
    prefill_device *probe = nullptr;
    if (prefill_device_create(device, 1, &probe) != PREFILL_OK)
      GTEST_SKIP() << device << ": " << prefill_last_error();
    prefill_device_destroy(probe);
  }
  bool isInt8() const {
    return std::string(dtype).find("int8") != std::string::npos;
  }
  const char *device = std::get<0>(GetParam()),
             *dtype = std::get<1>(GetParam());
};

TEST_P(IsaVariant, AgreesWithTransformers) {
  // Biases; GQA of three; a window; norms of heads.
  std::vector<const char *> names = {"qwen2", "llama-gqa3", "mistral-window",
                                     "qwen3"};
  if (std::string(dtype) == "f16")
    names = {"llama-f16"};
  if (isInt8()) // The others add nothing to the products of integers.
    names = {"llama-gqa3"};
  for (const char *name : names) {
    CompiledModel model(name, dtype, "contiguous", device);
    EXPECT_EQ("cpu:" + model.variant(), device);
    for (int64_t length : {1, 2, 65, 129, 513}) {
      double error = relativeError(model.run().prefill(model.tokens(length)),
                                   model.golden(length));
      EXPECT_LT(error, allowedError(model, dtype, length))
          << name << ", " << length << " tokens";
    }
  }
}

TEST_P(IsaVariant, EveryWayToRunAPromptGivesTheSameBits) {
  // A module that other tests have compiled.
  const char *layout = isInt8() ? "contiguous" : "paged_nhd:16";
  CompiledModel model("llama-gqa3", dtype, layout, device);
  CompiledModel oneThread("llama-gqa3", dtype, layout, device, 1);
  std::vector<int32_t> tokens = model.tokens(129);
  Logits whole = model.run().prefill(tokens);
  EXPECT_EQ(oneThread.run().prefill(tokens), whole) << "one thread";
  for (size_t piece : {1, 7, 33, 64}) {
    PromptRun run = model.run();
    Logits logits;
    for (size_t begin = 0; begin < tokens.size(); begin += piece)
      logits = run.prefill(
          {tokens.begin() + begin,
           tokens.begin() + std::min(begin + piece, tokens.size())});
    EXPECT_EQ(logits, whole) << "pieces of " << piece;
  }
  PromptRun poisoned = model.run();
  check(prefill_session_set_poison(poisoned.session.get(), 1), "poison");
  check(prefill_kv_cache_poison_unused(poisoned.cache.get()), "poison cache");
  EXPECT_EQ(poisoned.prefill(tokens), whole) << "poison";
}

// Lengths around the rows of a microkernel and a page of paged_vnni. Models are
// those that other tests have compiled.
TEST_P(IsaVariant, PoisonDoesNotMatter) {
  const char *name = std::string(dtype) == "f16"   ? "llama-f16"
                     : std::string(dtype) == "f32" ? "qwen3"
                                                   : "llama-gqa3";
  for (std::string layout : {"contiguous", "paged_vnni"}) {
    if (layout == "paged_vnni" && std::string(dtype) == "f16")
      continue; // no such pages
    if (layout == "paged_vnni" && std::string(dtype) == "f32+int8")
      continue; // not compiled elsewhere
    SCOPED_TRACE(layout);
    CompiledModel model(name, dtype, layout, device);
    EXPECT_EQ("cpu:" + model.variant(), device);
    expectPoisonDoesNotMatter(model, {1, 8, 9, 33, 65, 129}, 2);
  }
}

std::string nameOf(const testing::TestParamInfo<IsaVariant::ParamType> &info) {
  return testName(std::string(std::get<0>(info.param)).substr(4) + "_" +
                  std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(
    All, IsaVariant,
    testing::Combine(testing::Values("cpu:avx2", "cpu:avx512",
                                     "cpu:avx512_bf16"),
                     testing::Values("f32", "bf16", "f16")),
    nameOf);
INSTANTIATE_TEST_SUITE_P(Tiles, IsaVariant,
                         testing::Values(std::tuple("cpu:amx_bf16", "bf16"),
                                         std::tuple("cpu:amx_bf16",
                                                    "bf16+int8")),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(
    Int8, IsaVariant,
    testing::Combine(testing::Values("cpu:avx2", "cpu:avx_vnni", "cpu:avx512",
                                     "cpu:avx512_vnni", "cpu:avx512_bf16"),
                     testing::Values("f32+int8", "bf16+int8")),
    nameOf);

/// A variant and one with vectors of the same width, without its instructions.
class IntegerInstructions
    : public testing::TestWithParam<std::pair<const char *, const char *>> {};

// Sums of integers are exact whatever adds them. All else of f32 is the same
// code where vectors are equally wide.
TEST_P(IntegerInstructions, DoNotChangeABit) {
  Logits logits[2];
  int next = 0;
  for (std::string variant : {GetParam().first, GetParam().second}) {
    std::string device = "cpu:" + variant;
    prefill_device *probe = nullptr;
    if (prefill_device_create(device.c_str(), 1, &probe) != PREFILL_OK)
      GTEST_SKIP() << device << ": " << prefill_last_error();
    prefill_device_destroy(probe);
    CompiledModel model("llama-gqa3", "f32+int8", "contiguous", device);
    EXPECT_EQ(model.variant(), variant);
    logits[next++] = model.run().prefill(model.tokens(129));
  }
  EXPECT_EQ(logits[0], logits[1]);
}

INSTANTIATE_TEST_SUITE_P(All, IntegerInstructions,
                         testing::Values(std::pair("avx_vnni", "avx2"),
                                         std::pair("avx512_vnni", "avx512"),
                                         std::pair("avx512_bf16", "avx512")),
                         [](const auto &info) {
                           return std::string(info.param.first);
                         });

// Four of them quantize.
TEST(Int8Weights, NineLaunchesALayer) {
  CompiledModel model("llama-gqa3", "f32+int8");
  EXPECT_EQ(model.info().kernels_per_layer, 9);
  std::vector<prefill_launch_info> launches = model.launches();
  int64_t layers = model.info().num_layers;
  ASSERT_EQ(int64_t(launches.size()), 9 * layers + 3);
  const char *names[] = {"quantize_qkv_proj",
                         "qkv_proj",
                         "attention",
                         "quantize_o_proj",
                         "o_proj",
                         "quantize_gate_up_proj",
                         "gate_up_proj",
                         "quantize_down_proj",
                         "down_proj"};
  for (int64_t i = 0; i < 9 * layers; ++i) {
    EXPECT_EQ(launches[i + 1].layer, i / 9);
    EXPECT_STREQ(launches[i + 1].name, names[i % 9]);
  }
}

TEST(Threads, DoNotChangeABit) {
  for (const char *dtype : {"f32", "bf16", "f32+int8", "bf16+int8"}) {
    CompiledModel one("llama-gqa3", dtype, "contiguous", "cpu", 1);
    CompiledModel many("llama-gqa3", dtype, "contiguous", "cpu", 7);
    EXPECT_EQ(one.run().prefill(one.tokens(513)),
              many.run().prefill(many.tokens(513)));
  }
}

} // namespace
