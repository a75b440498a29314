//===- RowwiseTest.cpp - rowwise CUDA kernels against plain loops ---------===//
#include "EmbeddingProblem.h"
#include "RopeReference.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

class RowwiseTest : public testing::TestWithParam<Element> {
protected:
  Element element() const { return GetParam(); }
  std::string rows(int64_t columns) const {
    return rowsType(columns, dtype(element()));
  }
  void expectNear(DeviceMatrix &got, const DeviceMatrix &want,
                  int64_t rowCount) {
    got.download();
    for (int64_t r = 0; r < rowCount; ++r)
      for (int64_t c = 0; c < got.columns; ++c) {
        double expected = want.at(r, c);
        ASSERT_NEAR(got.at(r, c), expected,
                    3e-6 + std::abs(expected) * (unitOf(element()) + 3e-6))
            << "row " << r << " column " << c;
      }
  }
};

TEST_P(RowwiseTest, EmbeddingWithRowSums) {
  for (EmbeddingProblem problem : {EmbeddingProblem{element(), 64, 64},
                                   EmbeddingProblem{element(), 320, 128},
                                   EmbeddingProblem{element(), 512, 256},
                                   EmbeddingProblem{element(), 40, 40},
                                   EmbeddingProblem{element(), 200, 96}}) {
    CudaKernel kernel(problem.text());
    ASSERT_TRUE(kernel.ok());
    for (uint64_t seed : {0, 1, 2})
      problem.check(kernel, seed);
    if (HasFatalFailure())
      return;
  }
}

// The tail: only rows whose logits are asked for, normalised over the row.
TEST_P(RowwiseTest, FinalNormOfSelectedRows) {
  for (int64_t columns : {64, 320, 1032}) {
    constexpr int64_t rowCount = 13, selected = 5;
    std::string type = rows(columns),
                gainType = vectorType(columns, dtype(element()));
    CudaKernel kernel(rowwiseText(
        "%x: " + type + ", %batch: !prefill.batch, %g: " + gainType,
        config(4, 256, "logits"),
        "%s = prefill.select_rows %x, %batch : " + type + " -> " + type +
            "\n%n = prefill.rms_norm %s, %g {eps = 1.0e-6} : " + type + ", " +
            gainType + " -> " + type,
        "%n", type));
    ASSERT_TRUE(kernel.ok());
    DeviceMatrix x =
        DeviceMatrix(rowCount, columns, element()).randomize(1, 3.0);
    DeviceMatrix gain = DeviceMatrix(1, columns, element()).randomize(2);
    // A row that nobody asks for may hold NaN.
    x.fillRow(4, kNaN);
    DeviceMatrix result = DeviceMatrix(selected, columns, element()).fill(kNaN);
    Batch batch = Batch::ofRows(rowCount);
    batch.logitRows = selected;
    batch.logitsIndices = {11, 0, 3, 3, 7};
    for (uint64_t seed : {0, 1, 2}) {
      LaunchOptions options;
      options.seed = seed;
      kernel.run(Arguments()
                     .matrix(x, "x")
                     .batch(batch)
                     .matrix(gain, "gain")
                     .matrix(result, "out", true),
                 batch, options);
    }
    DeviceMatrix want(selected, columns, Element::F32);
    for (int64_t r = 0; r < selected; ++r) {
      double sum = 0;
      int64_t from = batch.logitsIndices[size_t(r)];
      for (int64_t c = 0; c < columns; ++c)
        sum += std::pow(x.at(from, c), 2);
      double inverse = 1 / std::sqrt(sum / double(columns) + 1e-6);
      for (int64_t c = 0; c < columns; ++c)
        want.at(r, c) = x.at(from, c) * inverse * gain.at(0, c);
    }
    expectNear(result, want, selected);
  }
}

// What is left unfused: one op each. Widths of whole chunks and others.
TEST_P(RowwiseTest, AddAndScaleRoundOnce) {
  for (int64_t columns : {264, 70}) {
    constexpr int64_t rowCount = 9;
    std::string type = rows(columns);
    CudaKernel kernel(rowwiseText(
        "%a: " + type + ", %b: " + type + ", %batch: !prefill.batch",
        config(4, 256),
        "%s = prefill.add %a, %b : " + type + ", " + type + " -> " + type +
            "\n%t = prefill.scale %s {factor = 0.5} : " + type + " -> " + type,
        "%t", type));
    ASSERT_TRUE(kernel.ok());
    DeviceMatrix a = DeviceMatrix(rowCount, columns, element()).randomize(1);
    DeviceMatrix b =
        DeviceMatrix(rowCount, columns, element()).randomize(2, 0.01);
    DeviceMatrix result = DeviceMatrix(rowCount, columns, element()).fill(kNaN);
    Batch batch = Batch::ofRows(rowCount);
    kernel.run(Arguments().matrix(a, "a").matrix(b, "b").batch(batch).matrix(
                   result, "out", true),
               batch);
    result.download();
    for (int64_t r = 0; r < rowCount; ++r)
      for (int64_t c = 0; c < columns; ++c)
        // Halving is exact.
        ASSERT_EQ(result.at(r, c),
                  0.5 *
                      roundTo(float(a.at(r, c)) + float(b.at(r, c)), element()))
            << r << " " << c;
  }
}

TEST_P(RowwiseTest, RopeAndHeadNormAlone) {
  for (auto [rope, headDim] : {std::pair{Rope{64, false}, int64_t(64)},
                               {Rope{32, true}, 64},
                               {Rope{24, false}, 24},
                               {Rope{16, false}, 80},
                               {Rope{6, true}, 8}}) {
    constexpr int64_t heads = 5, rowCount = 7, positions = 50;
    int64_t columns = heads * headDim;
    std::string type = rows(columns), head = std::to_string(headDim);
    std::string table = matrixType(positions, rope.rotaryDim, "f32");
    std::string gain = vectorType(headDim, dtype(element()));
    std::string wide = rowsType(columns, "f32");
    CudaKernel kernel(rowwiseText(
        "%x: " + type + ", %batch: !prefill.batch, %t: " + table +
            ", %g: " + gain,
        config(4, 256 / headDim * headDim),
        "%n = prefill.rms_norm %x, %g {eps = 1.0e-6, head_dim = " + head +
            "} : " + type + ", " + gain + " -> " + wide +
            "\n%r = prefill.rope %n, %batch table(%t : " + table +
            ") {rope = " + rope.attribute() + ", head_dim = " + head +
            "} : " + wide + " -> " + type,
        "%r", type));
    ASSERT_TRUE(kernel.ok());
    DeviceMatrix x = DeviceMatrix(rowCount, columns, element()).randomize(1);
    DeviceMatrix gains = DeviceMatrix(1, headDim, element()).randomize(2);
    DeviceMatrix angles = rope.table(positions);
    DeviceMatrix want(rowCount, columns, Element::F32);
    DeviceMatrix result = DeviceMatrix(rowCount, columns, element()).fill(kNaN);
    Batch batch = Batch::ofRows(rowCount);
    for (int64_t r = 0; r < rowCount; ++r) {
      batch.positions[size_t(r)] = int32_t(r * 7);
      for (int64_t h = 0; h < heads; ++h) {
        double squares = 0;
        for (int64_t d = 0; d < headDim; ++d)
          squares += std::pow(x.at(r, h * headDim + d), 2);
        double inverse = 1 / std::sqrt(squares / double(headDim) + 1e-6);
        for (int64_t d = 0; d < headDim; ++d)
          want.at(r, h * headDim + d) =
              x.at(r, h * headDim + d) * inverse * gains.at(0, d);
        rope.apply(want, r, h * headDim, r * 7);
      }
    }
    kernel.run(Arguments()
                   .matrix(x, "x")
                   .batch(batch)
                   .matrix(angles, "table")
                   .matrix(gains, "gain")
                   .matrix(result, "out", true),
               batch);
    expectNear(result, want, rowCount);
  }
}

TEST_P(RowwiseTest, KVAppendAlone) {
  constexpr int64_t headDim = 40, heads = 2, rowCount = 6, slots = 8;
  std::string type = rows(heads * headDim);
  std::string cache = "!prefill.kv_cache<contiguous, num_kv_heads = 2, "
                      "head_dim_qk = 40, head_dim_v = 40, dtype = " +
                      dtype(element()) + ", block_size = 8>";
  CudaKernel kernel(rowwiseText(
      "%k: " + type + ", %v: " + type + ", %cache: " + cache +
          ", %batch: !prefill.batch",
      config(4, 240),
      "%c = prefill.kv_append %k, %v into %cache, %batch : " + type + ", " +
          type + " into " + cache,
      "%c", cache));
  ASSERT_TRUE(kernel.ok());
  DeviceMatrix keys =
      DeviceMatrix(rowCount, heads * headDim, element()).randomize(1);
  DeviceMatrix values =
      DeviceMatrix(rowCount, heads * headDim, element()).randomize(2);
  DeviceMatrix keyCache =
      DeviceMatrix(slots, heads * headDim, element()).fill(kNaN);
  DeviceMatrix valueCache =
      DeviceMatrix(slots, heads * headDim, element()).fill(kNaN);
  Batch batch = Batch::ofRows(rowCount);
  batch.slots = {3, 1, -1, 7, 0, -1};
  kernel.run(Arguments()
                 .matrix(keys, "k")
                 .matrix(values, "v")
                 .matrix(keyCache, "key cache", true)
                 .matrix(valueCache, "value cache", true)
                 .word(0)
                 .word(heads * headDim)
                 .word(headDim)
                 .batch(batch),
             batch);
  keyCache.download();
  valueCache.download();
  for (int64_t slot = 0; slot < slots; ++slot) {
    auto row = std::find(batch.slots.begin(), batch.slots.end(), slot);
    for (int64_t c = 0; c < heads * headDim; ++c) {
      if (row == batch.slots.end()) {
        ASSERT_TRUE(std::isnan(keyCache.at(slot, c)));
        ASSERT_TRUE(std::isnan(valueCache.at(slot, c)));
        continue;
      }
      ASSERT_EQ(keyCache.at(slot, c), keys.at(row - batch.slots.begin(), c));
      ASSERT_EQ(valueCache.at(slot, c),
                values.at(row - batch.slots.begin(), c));
    }
  }
}

// The approximations of exp2 and of the reciprocal over all of f32's range.
TEST(RowwiseActivation, SiluIsAccurate) {
  constexpr int64_t columns = 256, rowCount = 40;
  std::string type = rowsType(columns, "f32");
  CudaKernel kernel(
      rowwiseText("%g: " + type + ", %u: " + type + ", %batch: !prefill.batch",
                  config(4, 128),
                  "%a = prefill.gated_act silu %g, %u : " + type + ", " + type +
                      " -> " + type,
                  "%a", type));
  ASSERT_TRUE(kernel.ok());
  DeviceMatrix gate =
      DeviceMatrix(rowCount, columns, Element::F32).randomize(1);
  for (int64_t r = 0; r < rowCount; ++r)
    for (int64_t c = 0; c < columns; ++c)
      gate.at(r, c) = float(gate.at(r, c) * std::pow(1.2, double(r) - 10));
  DeviceMatrix up = DeviceMatrix(rowCount, columns, Element::F32).fill(1.0);
  DeviceMatrix result =
      DeviceMatrix(rowCount, columns, Element::F32).fill(kNaN);
  Batch batch = Batch::ofRows(rowCount);
  kernel.run(Arguments()
                 .matrix(gate, "gate")
                 .matrix(up, "up")
                 .batch(batch)
                 .matrix(result, "out", true),
             batch);
  result.download();
  for (int64_t r = 0; r < rowCount; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      double g = gate.at(r, c), want = g / (1 + std::exp(-g));
      // exp2 of a product rounded to f32 errs by its exponent's ulp; where the
      // reciprocal is subnormal it is 0.
      ASSERT_NEAR(result.at(r, c), want,
                  (4e-7 + 1.2e-7 * std::abs(g)) * std::abs(want) + 1e-36)
          << "silu(" << g << ")";
    }
}

INSTANTIATE_TEST_SUITE_P(Types, RowwiseTest,
                         testing::Values(Element::F32, Element::BF16,
                                         Element::F16),
                         [](const auto &info) { return dtype(info.param); });

} // namespace
