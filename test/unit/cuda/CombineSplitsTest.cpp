// combine_splits on target cuda in the emulator.
#include "CombineSplitsProblem.h"
#include "EmbeddingProblem.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

class CombineSplits : public testing::TestWithParam<Element> {};

// Rows of less than one tile of columns, of one, of several and of one that is
// cut off; heads of more and of fewer columns than a lane's.
TEST_P(CombineSplits, AnyWayOfMissingSplits) {
  for (auto [splits, heads, headDim] :
       {std::tuple<int64_t, int64_t, int64_t>{2, 1, 8},
        {2, 3, 24},
        {3, 4, 64},
        {4, 5, 128},
        {16, 2, 32},
        {16, 40, 64}}) {
    CombineSplitsProblem problem{GetParam(), splits, heads, headDim};
    SCOPED_TRACE(problem.text());
    CudaKernel kernel(problem.text());
    ASSERT_TRUE(kernel.ok());
    std::vector<uint8_t> first = problem.check(kernel, 0);
    for (uint64_t seed : {1, 2, 3})
      EXPECT_EQ(problem.check(kernel, seed), first) << "seed " << seed;
  }
}

// What no split wrote costs no traffic: 16 splits of which one has keys are
// read as one.
TEST(CombineSplitsTraffic, SplitsWithoutKeysAreNotRead) {
  CombineSplitsProblem problem{Element::BF16, 16, 8, 64};
  CudaKernel kernel(problem.text());
  ASSERT_TRUE(kernel.ok());
  DeviceMatrix partials(1, 16 * problem.columns(), Element::F32);
  DeviceMatrix lse =
      DeviceMatrix(1, 16 * problem.heads, Element::F32).fill(-INFINITY);
  for (int64_t head = 0; head < problem.heads; ++head)
    lse.at(0, 3 * problem.heads + head) = 1.0;
  DeviceMatrix result(1, problem.columns(), Element::BF16);
  Batch batch = Batch::ofRows(1);
  LaunchCounters counters = kernel.run(Arguments()
                                           .matrix(partials, "partials")
                                           .matrix(lse, "lse")
                                           .batch(batch)
                                           .matrix(result, "out", true),
                                       batch);
  // The outputs of split 3 and of the first split, which stands for none, and
  // all log-sum-exps.
  EXPECT_EQ(counters.distinctLoadSectors * 32,
            uint64_t(2 * problem.columns() * 4 + 16 * problem.heads * 4));
}

TEST(CombineSplitsRefusal, HeadsOfWholeChunks) {
  CombineSplitsProblem problem{Element::BF16, 2, 2, 20};
  EXPECT_THAT(CudaKernel::errorOf(problem.text()),
              testing::HasSubstr("has head_dim = 20; target cuda needs a "
                                 "multiple of 8"));
}

INSTANTIATE_TEST_SUITE_P(Elements, CombineSplits,
                         testing::Values(Element::BF16, Element::F16),
                         [](const auto &info) { return dtype(info.param); });

} // namespace
