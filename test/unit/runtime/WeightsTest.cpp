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

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>

using namespace prefill;
using namespace prefill::test;
using testing::HasSubstr;

namespace {

/// Random weights of seed 5, but for the tensors that a test gives.
class GivenSource : public rt::TensorSource {
public:
  std::map<std::string, std::vector<float>> tensors;
  mutable std::atomic<uint64_t> numRead = 0; ///< of their elements

  rt::Result<std::unique_ptr<rt::TensorReader>>
  find(const std::string &name,
       const std::vector<int64_t> &shape) const override {
    if (auto given = tensors.find(name); given != tensors.end())
      return std::unique_ptr<rt::TensorReader>(
          new Reader(given->second, numRead));
    return rt::RandomSource(5).find(name, shape);
  }

private:
  struct Reader : rt::TensorReader {
    Reader(const std::vector<float> &values, std::atomic<uint64_t> &numRead)
        : values(values), numRead(numRead) {}
    void read(uint64_t begin, uint64_t count, float *out) const override {
      numRead += count;
      std::copy_n(values.begin() + static_cast<int64_t>(begin), count, out);
    }
    const std::vector<float> &values;
    std::atomic<uint64_t> &numRead;
  };
};

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

  uint32_t addQuantized(uint32_t input, std::vector<int64_t> shape,
                        bool resident) {
    module::QuantizeSourceT quantize;
    quantize.input = input;
    return add(std::move(shape), quantize, resident, module::DType::i8);
  }
  uint32_t addScales(uint32_t input, int64_t rows) {
    module::QuantizeScaleSourceT scales;
    scales.input = input;
    return add({rows}, scales, true);
  }

  /// Loads the weights of `source` and returns the bytes of one.
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
        **loaded, source, [&](const char *, uint64_t done, uint64_t total) {
          EXPECT_TRUE(progress.empty() || done >= progress.back());
          EXPECT_LE(done, total);
          progress.push_back(done);
        });
    EXPECT_TRUE(weights) << weights.error().message;
    EXPECT_EQ(progress.back(), (*weights)->bytes());
    uint64_t size = rt::byteSize(file.plans[0]->weights[weight]->dtype);
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

  std::vector<int8_t> evaluateIntegers(uint32_t weight, int threads = 1) {
    std::vector<uint8_t> bytes = evaluate(weight, threads);
    return {bytes.begin(), bytes.end()};
  }

  module::ModuleT file;
  GivenSource source;
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
    for (float factor : {1.0f, 0.5f, 0x1p-126f, 3e38f, 0.0f}) {
      std::vector<int8_t> integers(near.size());
      variant->f32ToInt8(near.data(), factor, count, integers.data());
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(integers[i], rt::quantize(near[i], factor)) << near[i];
    }
    // Maxima of pieces of every length, and NaN wherever it stands.
    std::vector<float> some(101);
    for (size_t i = 0; i < some.size(); ++i)
      some[i] = static_cast<float>(static_cast<int>(i * 37 % 101)) - 50;
    for (int64_t length = 0; length <= 101; ++length) {
      float expected = 0.5f;
      for (int64_t i = 0; i < length; ++i)
        expected = std::max(expected, std::fabs(some[i]));
      ASSERT_EQ(variant->largest(some.data(), length, 0.5f), expected);
    }
    EXPECT_EQ(variant->largest(some.data(), 101, 51), 51);
    EXPECT_TRUE(std::isnan(variant->largest(some.data(), 101, NAN)));
    for (size_t i = 0; i < some.size(); ++i) {
      float spared = some[i];
      some[i] = -INFINITY;
      ASSERT_EQ(variant->largest(some.data(), 101, 0), INFINITY);
      some[(i + 5) % 101] = std::copysign(NAN, -1.0f);
      ASSERT_TRUE(std::isnan(variant->largest(some.data(), 101, 0)));
      some[i] = spared;
      some[(i + 5) % 101] = 3;
    }
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

// ---- 8-bit integers.

/// As docs/spec.md says it, in the library's words.
struct ReferenceRow {
  explicit ReferenceRow(const std::vector<float> &row) {
    float largest = 0;
    for (float value : row)
      largest = std::max(largest, std::fabs(value));
    bool empty = largest < std::ldexp(1.0f, -100);
    scale = empty ? 0.0f : largest / 127.0f;
    for (float value : row) {
      float product = empty ? 0.0f : value * (127.0f / largest);
      integers.push_back(static_cast<int8_t>(
          std::clamp(std::nearbyint(product), -127.0f, 127.0f)));
    }
  }
  float scale;
  std::vector<int8_t> integers;
};

TEST(RowQuantization, RoundsToTheNearestTiesToEven) {
  for (auto [value, expected] : {std::pair{0.5f, 0},
                                 {0.50001f, 1},
                                 {1.5f, 2},
                                 {2.5f, 2},
                                 {-0.5f, 0},
                                 {-1.5f, -2},
                                 {-2.5f, -2},
                                 {-2.50001f, -3},
                                 {125.5f, 126},
                                 {126.5f, 126},
                                 {126.50001f, 127},
                                 {127.0f, 127},
                                 {1e30f, 127},
                                 {-1e30f, -127},
                                 {-0.0f, 0},
                                 {1e-40f, 0},
                                 {INFINITY, 127},
                                 {-INFINITY, -127}})
    EXPECT_EQ(rt::quantize(value, 1), expected) << value;
  EXPECT_EQ(rt::quantize(NAN, 1), 127);
  EXPECT_EQ(rt::quantize(INFINITY, 0), 127); // NaN as well

  using rt::RowQuantization;
  EXPECT_EQ(RowQuantization::of(127).scale, 1);
  EXPECT_EQ(RowQuantization::of(127).factor, 1);
  for (float tiny : {0.0f, 1e-40f, std::nextafter(0x1p-100f, 0.f)}) {
    EXPECT_EQ(RowQuantization::of(tiny).scale, 0);
    EXPECT_EQ(RowQuantization::of(tiny).factor, 0);
  }
  // The ends of the range: the largest number is 127, and nothing overflows.
  for (float largest : {0x1p-100f, std::numeric_limits<float>::max()}) {
    auto [scale, factor] = RowQuantization::of(largest);
    EXPECT_EQ(scale, largest / 127);
    EXPECT_TRUE(std::isfinite(factor));
    EXPECT_EQ(rt::quantize(largest, factor), 127);
    EXPECT_EQ(rt::quantize(-largest, factor), -127);
  }
  EXPECT_EQ(RowQuantization::of(INFINITY).scale, INFINITY);
  EXPECT_TRUE(std::isnan(RowQuantization::of(NAN).scale));
}

/// Rows longer than a piece whose largest numbers lie in any of their pieces,
/// and rows of every odd kind; the last two are not finite.
std::vector<std::vector<float>> oddRows(int64_t K) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> rows;
  auto addRow = [&](float size) -> std::vector<float> & {
    std::vector<float> &row = rows.emplace_back(K);
    for (float &value : row)
      value = size * normal(random);
    return row;
  };
  for (int64_t i = 0; i < 60; ++i)
    addRow(std::ldexp(1.0f, static_cast<int>(random() % 60) -
                                30))[random() % K] *= 10;
  // Multiples of a half where the factor is 1: every tie.
  std::vector<float> &ties = addRow(0);
  for (int64_t k = 0; k < K; ++k)
    ties[k] = static_cast<float>(k % 509 - 254) / 2;
  addRow(0);
  for (float &value : addRow(0))
    value = -0.0f;
  addRow(0)[K - 1] = -5;
  addRow(1e-40f);    // no normal number among them
  addRow(0x1p-110f); // all too small
  addRow(0)[0] = 0x1p-100f;
  addRow(1e37f)[7] = std::numeric_limits<float>::max();
  addRow(1)[K - 2] = -INFINITY;
  addRow(1)[K / 2] = NAN;
  return rows;
}
constexpr int64_t numOddRows = 70, numFiniteRows = 68;

class QuantizeTest : public ProgramTest {
protected:
  static constexpr int64_t K = 2503;

  QuantizeTest() : rows(oddRows(K)) {
    EXPECT_EQ(rows.size(), size_t(numOddRows));
    std::vector<float> &flat = source.tensors["m"];
    for (const std::vector<float> &row : rows)
      flat.insert(flat.end(), row.begin(), row.end());
    matrix = addTensor("m", {numOddRows, K});
  }

  std::vector<std::vector<float>> rows;
  uint32_t matrix;
};

TEST_F(QuantizeTest, IntegersAndScalesAreThoseOfTheSpecification) {
  uint32_t integers = addQuantized(matrix, {numOddRows, K}, true);
  uint32_t scales = addScales(matrix, numOddRows);
  std::vector<int8_t> values = evaluateIntegers(integers, 2);
  std::vector<float> scale = evaluateFloats(scales, 2);
  for (int64_t n = 0; n < numOddRows; ++n) {
    if (n >= numFiniteRows) {
      EXPECT_FALSE(std::isfinite(scale[n])) << n;
      continue;
    }
    ReferenceRow expected(rows[n]);
    EXPECT_EQ(scale[n], expected.scale) << n;
    for (int64_t k = 0; k < K; ++k)
      ASSERT_EQ(values[n * K + k], expected.integers[k]) << n << " " << k;
  }
}

TEST_F(QuantizeTest, PackedInFoursLikeAnyMatrix) {
  // Groups end within a panel of 32, within a block of 16 and at its end.
  for (auto [kPack, group] :
       {std::pair{4, numOddRows}, {4, 48}, {4, 33}, {1, 48}, {64, 48}}) {
    int64_t panelN = 32, steps = (K + kPack - 1) / kPack;
    std::vector<int64_t> rowOf; // of each place in the panels
    for (int64_t first = 0; first < numOddRows; first += group) {
      int64_t count = std::min<int64_t>(group, numOddRows - first);
      for (int64_t n = 0; n < (count + panelN - 1) / panelN * panelN; ++n)
        rowOf.push_back(n < count ? first + n : -1);
    }
    auto panels = static_cast<int64_t>(rowOf.size()) / panelN;
    uint32_t pack =
        addPack(addQuantized(matrix, {numOddRows, K}, false),
                static_cast<int>(panelN), kPack, static_cast<int>(group),
                {panels, steps, panelN, kPack}, module::DType::i8);
    std::vector<int8_t> values = evaluateIntegers(pack, 2);
    for (size_t place = 0; place < rowOf.size(); ++place) {
      int64_t n = rowOf[place];
      if (n >= numFiniteRows)
        continue;
      std::vector<int8_t> expected(steps * kPack);
      if (n >= 0)
        std::copy_n(ReferenceRow(rows[n]).integers.begin(), K,
                    expected.begin());
      for (int64_t k = 0; k < steps * kPack; ++k) {
        auto panel = static_cast<int64_t>(place) / panelN;
        int64_t at = ((panel * steps + k / kPack) * panelN +
                      static_cast<int64_t>(place) % panelN) *
                         kPack +
                     k % kPack;
        ASSERT_EQ(values[at], expected[k])
            << place << " " << k << " k_pack " << kPack;
      }
    }
  }
}

TEST_F(QuantizeTest, PackingTakesTwoLooksAtARow) {
  constexpr int64_t steps = (K + 3) / 4;
  uint32_t pack = addPack(addQuantized(matrix, {numOddRows, K}, false), 32, 4,
                          numOddRows, {3, steps, 32, 4}, module::DType::i8);
  evaluate(pack, 2);
  EXPECT_EQ(source.numRead, uint64_t(2 * numOddRows * K));
}

TEST_F(QuantizeTest, TheInputIsEvaluatedInF32) {
  uint32_t gain = addTensor("norm", {K});
  module::ConcatSourceT concat;
  concat.inputs = {matrix, matrix};
  constexpr int64_t N = 2 * numOddRows;
  uint32_t joined = add({N, K}, concat, false, module::DType::bf16);
  module::ScaleColumnsSourceT scale;
  scale.input = joined;
  scale.gain = gain;
  // bf16 on paper; its values still are f32 on the way.
  uint32_t scaled = add({N, K}, scale, false, module::DType::bf16);
  uint32_t integers = addQuantized(scaled, {N, K}, true);
  uint32_t scales = addScales(scaled, N);
  std::vector<int8_t> values = evaluateIntegers(integers);
  std::vector<float> found = evaluateFloats(scales);
  rt::RandomTensor g(5, "norm", {K});
  for (int64_t n = 0; n < N; ++n) {
    std::vector<float> row = rows[n % numOddRows];
    for (int64_t k = 0; k < K; ++k)
      row[k] *= g[k];
    if (!std::all_of(row.begin(), row.end(),
                     [](float value) { return std::isfinite(value); }))
      continue;
    ReferenceRow expected(row);
    EXPECT_EQ(found[n], expected.scale) << n;
    ASSERT_TRUE(std::equal(expected.integers.begin(), expected.integers.end(),
                           values.begin() + n * K))
        << n;
  }
}

TEST_F(QuantizeTest, AnyPieceOfARowIsThatOfTheWhole) {
  uint32_t integers = addQuantized(matrix, {numOddRows, K}, false);
  addScales(matrix, numOddRows);
  std::vector<uint8_t> bytes = serialize(file);
  auto program = rt::WeightProgram::create(
      *module::GetModule(bytes.data())->plans()->Get(0), source);
  ASSERT_TRUE(program);
  for (int64_t n = 0; n < numFiniteRows; ++n) {
    ReferenceRow expected(rows[n]);
    for (auto [begin, count] : {std::pair<int64_t, int64_t>{0, K},
                                {0, 1},
                                {1, 1023},
                                {1024, 1024},
                                {K - 7, 7}}) {
      std::vector<float> piece(count + 1, -1000);
      program->row(integers, n, begin, count, piece.data());
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(piece[i], expected.integers[begin + i]) << n << " " << begin;
      EXPECT_EQ(piece[count], -1000);
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
