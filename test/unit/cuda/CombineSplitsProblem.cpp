#include "CombineSplitsProblem.h"
#include "EmbeddingProblem.h"
#include "gtest/gtest.h"

namespace prefill_test {

/// Warps of a row take tiles of these in turn.
static constexpr int64_t kWidth = 256;
static constexpr int64_t kRows = 7;

std::string CombineSplitsProblem::text() const {
  std::string partials = rowsType(splits * columns(), "f32");
  std::string lse = rowsType(splits * heads, "f32");
  std::string out = rowsType(columns(), dtype(element));
  int64_t width = std::min(kWidth, (columns() + 7) / 8 * 8);
  return rowwiseText("%p: " + partials + ", %l: " + lse +
                         ", %batch: !prefill.batch",
                     config(1, width),
                     "%c = prefill.combine_splits %p, %l : " + partials + ", " +
                         lse + " -> " + out,
                     "%c", out);
}

std::vector<uint8_t> CombineSplitsProblem::check(CudaKernel &kernel,
                                                 uint64_t seed) const {
  DeviceMatrix partials =
      DeviceMatrix(kRows, splits * columns(), Element::F32).randomize(1);
  DeviceMatrix lse =
      DeviceMatrix(kRows, splits * heads, Element::F32).randomize(2, 4.0);
  auto drop = [&](int64_t row, int64_t split, int64_t head) {
    lse.at(row, split * heads + head) = -INFINITY;
    for (int64_t d = 0; d < headDim; ++d)
      partials.at(row, split * columns() + head * headDim + d) = kNaN;
  };
  for (int64_t split = 0; split < splits; ++split)
    for (int64_t head = 0; head < heads; ++head) {
      // Row 0: the first split alone; 1: the last alone; 2: none; 3: every
      // second one, another for each head.
      if (split > 0)
        drop(0, split, head);
      if (split + 1 < splits)
        drop(1, split, head);
      drop(2, split, head);
      if ((split + head) % 2)
        drop(3, split, head);
      // Row 4: far beyond what exp can have; 5: weights that vanish.
      double &far = lse.at(4, split * heads + head);
      far = roundTo(far + 3e4, Element::F32);
      lse.at(5, split * heads + head) = -1e3 * double(split);
    }
  DeviceMatrix result = DeviceMatrix(kRows, columns(), element).fill(kNaN);
  Batch batch = Batch::ofRows(kRows);
  LaunchOptions options;
  options.seed = seed;
  options.checkBlockRaces = true;
  kernel.run(Arguments()
                 .matrix(partials, "partials")
                 .matrix(lse, "lse")
                 .batch(batch)
                 .matrix(result, "out", true),
             batch, options);
  std::vector<uint8_t> bytes(result.bytes.data(),
                             result.bytes.data() + result.bytes.size());
  result.download();
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < columns(); ++c) {
      int64_t head = c / headDim;
      double largest = -INFINITY, sum = 0.0, value = 0.0;
      auto lseOf = [&](int64_t split) {
        return lse.at(r, split * heads + head);
      };
      for (int64_t split = 0; split < splits; ++split)
        largest = std::max(largest, lseOf(split));
      for (int64_t split = 0; split < splits; ++split) {
        if (lseOf(split) == -INFINITY)
          continue;
        double weight = std::exp(lseOf(split) - largest);
        value += weight * partials.at(r, split * columns() + c);
        sum += weight;
      }
      double expected = sum == 0.0 ? 0.0 : value / sum;
      EXPECT_NEAR(result.at(r, c), expected,
                  std::abs(expected) * unitOf(element) + 4e-6)
          << "row " << r << " column " << c;
      if (testing::Test::HasFailure())
        return bytes;
    }
  return bytes;
}

} // namespace prefill_test
