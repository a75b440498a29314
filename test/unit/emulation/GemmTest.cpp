//===- GemmTest.cpp - a double-buffered GEMM under many schedules ---------===//
#include "EmulatedKernel.h"
#include "GemmKernel.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace prefill_test;

namespace {

struct GemmProblem {
  GemmProblem(int64_t m, int64_t n, int64_t k)
      : m(m), n(n), k(k), a(m * k), b(n * k), c(m * n, 0xffff) {
    for (size_t i = 0; i < a.size(); ++i)
      a[i] = toBF16(randomValue(i));
    for (size_t i = 0; i < b.size(); ++i)
      b[i] = toBF16(randomValue(7919 + i));
  }
  void registerWith(EmulatedKernel &kernel) {
    kernel.add(a, "a", false).add(b, "b", false).add(c, "c");
  }
  std::vector<uint64_t> words() const {
    return {a.word(),    b.word(),    c.word(),
            uint64_t(m), uint64_t(n), uint64_t(k)};
  }
  int64_t blocks() const {
    return (m + gemmTile - 1) / gemmTile * (n / gemmTile);
  }
  double maxError() const {
    double worst = 0;
    for (int64_t row = 0; row < m; ++row)
      for (int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i)
          sum += double(fromBF16(a[row * k + i])) *
                 double(fromBF16(b[column * k + i]));
        double error = std::abs(fromBF16(c[row * n + column]) - sum);
        if (!(error <= worst))
          worst = error;
      }
    return worst;
  }
  int64_t m, n, k;
  DeviceArray<uint16_t> a, b, c;
};

TEST(Gemm, AgainstLoopsUnderEightSeeds) {
  EmulatedKernel kernel(gemmKernel());
  for (int64_t m : {64, 130}) {
    GemmProblem problem(m, 128, 160);
    kernel.emulator.memory().clear();
    problem.registerWith(kernel);
    for (uint64_t seed = 0; seed < 9; ++seed) {
      for (size_t i = 0; i < problem.c.size(); ++i)
        problem.c[i] = 0xffff;
      LaunchOptions options;
      options.seed = seed;
      options.checkBlockRaces = seed == 8;
      kernel.clean(problem.words(), problem.blocks(), options);
      EXPECT_LT(problem.maxError(), 0.02) << "m " << m << " seed " << seed;
    }
  }
}

TEST(Gemm, CountersEqualTheFormulas) {
  EmulatedKernel kernel(gemmKernel());
  GemmProblem problem(130, 128, 160);
  problem.registerWith(kernel);
  LaunchCounters full = kernel.clean(problem.words(), problem.blocks());
  LaunchOptions countOnly;
  countOnly.countOnly = true;
  for (size_t i = 0; i < problem.c.size(); ++i)
    problem.c[i] = 0x1234;
  LaunchCounters counted =
      kernel.clean(problem.words(), problem.blocks(), countOnly);
  EXPECT_EQ(problem.c[0], 0x1234); // nothing is stored
  for (const LaunchCounters *counters : {&full, &counted}) {
    uint64_t blocks = problem.blocks(), steps = problem.k / gemmDepth;
    EXPECT_EQ(counters->matrixInstructions, blocks * steps * 4 * 16);
    EXPECT_EQ(counters->matrixLoads, blocks * steps * 4 * 8);
    EXPECT_EQ(counters->barriers, blocks * 4 * (2 * steps + 1));
    EXPECT_EQ(counters->bankConflicts, 0u);
    uint64_t columnsOfTiles = problem.n / gemmTile, rowsOfTiles = 3;
    const SiteCounters *a = counters->site("gemm.copy_a", SiteKind::asyncCopy);
    const SiteCounters *b = counters->site("gemm.copy_b", SiteKind::asyncCopy);
    const SiteCounters *c = counters->site("gemm.store", SiteKind::store);
    ASSERT_TRUE(a && b && c);
    // Rows past M are not read.
    EXPECT_EQ(a->globalBytes, columnsOfTiles * problem.m * problem.k * 2);
    EXPECT_EQ(b->globalBytes, rowsOfTiles * problem.n * problem.k * 2);
    EXPECT_EQ(c->globalBytes, uint64_t(problem.m * problem.n * 2));
    EXPECT_EQ(a->sectors * 32, a->globalBytes); // whole sectors
    EXPECT_EQ(b->sectors * 32, b->globalBytes);
    EXPECT_EQ(c->sectors * 32, c->globalBytes);
    EXPECT_EQ(counters->distinctLoadSectors * 32,
              uint64_t(problem.m + problem.n) * problem.k * 2);
    EXPECT_EQ(counters->distinctStoreSectors * 32,
              uint64_t(problem.m * problem.n * 2));
  }
}

/// A schedule and a report do not depend on the number of host threads.
TEST(Gemm, SameForEveryNumberOfHostThreads) {
  std::string first;
  for (int hostThreads : {1, 2, 5}) {
    EmulatedKernel kernel(gemmKernel(GemmMutant::storeBeyondEnd), hostThreads);
    GemmProblem problem(130, 256, 32);
    problem.registerWith(kernel);
    auto report = kernel.run(problem.words(), problem.blocks()).report;
    ASSERT_TRUE(report);
    std::string message = report->message();
    message.resize(message.find(" bytes past")); // addresses differ
    first = first.empty() ? message : first;
    EXPECT_EQ(message, first);
  }
}

struct GemmCase {
  GemmMutant mutant;
  const char *name;
  Finding finding;
  const char *site, *otherSite; ///< "": not looked at
  int64_t m = 130, k = 160;
};

class GemmMutants : public testing::TestWithParam<GemmCase> {};

TEST_P(GemmMutants, IsCaught) {
  const GemmCase &c = GetParam();
  EmulatedKernel kernel(gemmKernel(c.mutant));
  GemmProblem problem(c.m, 128, c.k);
  problem.registerWith(kernel);
  // Under every schedule, not under a lucky one.
  for (uint64_t seed = 0; seed < 4; ++seed) {
    LaunchOptions options;
    options.seed = seed;
    options.checkBlockRaces = c.finding == Finding::globalRace;
    auto report = kernel.run(problem.words(), problem.blocks(), options).report;
    ASSERT_TRUE(report) << c.name << " seed " << seed;
    std::string message = report->message();
    EXPECT_EQ(findingName(report->finding), findingName(c.finding)) << message;
    // Which of the two accesses comes second depends on the schedule.
    bool sameOrder = report->site == c.site;
    bool otherOrder =
        report->otherSite == c.site && report->site == c.otherSite;
    EXPECT_TRUE(sameOrder || otherOrder) << message;
    if (*c.otherSite && sameOrder) {
      EXPECT_EQ(report->otherSite, c.otherSite) << message;
    }
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_NE(message.find("kernel gemm, block "), std::string::npos);
    if (seed == 0)
      RecordProperty("report", message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GemmMutants,
    testing::Values(
        GemmCase{GemmMutant::weakWait, "weakWait", Finding::copyNotAwaited,
                 "gemm.load_a", "gemm.copy_a"},
        GemmCase{GemmMutant::noWait, "noWait", Finding::copyNotAwaited,
                 "gemm.load_a", "gemm.copy_a"},
        GemmCase{GemmMutant::noCommit, "noCommit", Finding::copyNotAwaited,
                 "gemm.load_a", "gemm.copy_a"},
        GemmCase{GemmMutant::rowBeyondEnd, "rowBeyondEnd",
                 Finding::globalOutOfBounds, "gemm.copy_a", ""},
        GemmCase{GemmMutant::storeBeyondEnd, "storeBeyondEnd",
                 Finding::globalOutOfBounds, "gemm.store", ""},
        GemmCase{GemmMutant::tooManyBytes, "tooManyBytes",
                 Finding::invalidOperand, "gemm.copy_a", ""},
        GemmCase{GemmMutant::noStagedBarrier, "noStagedBarrier", Finding::race,
                 "gemm.stage_load", "gemm.stage_store"},
        GemmCase{GemmMutant::stagingTooLarge, "stagingTooLarge",
                 Finding::sharedOutOfBounds, "gemm.stage_store", ""},
        GemmCase{GemmMutant::sameTile, "sameTile", Finding::globalRace,
                 "gemm.store", "gemm.store"},
        GemmCase{GemmMutant::sourceShifted, "sourceShifted",
                 Finding::misaligned, "gemm.copy_a", ""},
        GemmCase{GemmMutant::unalignedTile, "unalignedTile",
                 Finding::misaligned, "gemm.copy_a", ""},
        GemmCase{GemmMutant::warpExits, "warpExits", Finding::barrierMisses,
                 "gemm.arrived", ""},
        GemmCase{GemmMutant::unwrittenRows, "unwrittenRows",
                 Finding::unwrittenRead, "gemm.load_a", ""}),
    [](const auto &info) { return std::string(info.param.name); });

/// What the report is depends on which warp runs first: an unordered access, or
/// one of bytes that are being copied.
class GemmSchedules : public testing::TestWithParam<GemmCase> {};

TEST_P(GemmSchedules, IsCaught) {
  const GemmCase &c = GetParam();
  EmulatedKernel kernel(gemmKernel(c.mutant));
  GemmProblem problem(c.m, 128, c.k);
  problem.registerWith(kernel);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    LaunchOptions options;
    options.seed = seed;
    auto report = kernel.run(problem.words(), problem.blocks(), options).report;
    ASSERT_TRUE(report) << c.name << " seed " << seed;
    std::string message = report->message();
    EXPECT_TRUE(message.find(c.site) != std::string::npos ||
                message.find(c.otherSite) != std::string::npos)
        << message;
    EXPECT_NE(report->finding, Finding::globalOutOfBounds) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GemmSchedules,
    testing::Values(GemmCase{GemmMutant::noArrivalBarrier, "noArrivalBarrier",
                             Finding::race, "gemm.load_", "gemm.copy_"},
                    GemmCase{GemmMutant::noReuseBarrier, "noReuseBarrier",
                             Finding::race, "gemm.copy_", "gemm.load_"},
                    GemmCase{GemmMutant::wrongStage, "wrongStage",
                             Finding::race, "gemm.copy_", "gemm.load_"},
                    GemmCase{GemmMutant::oneWarpLess, "oneWarpLess",
                             Finding::race, "gemm.load_", "gemm.copy_"},
                    GemmCase{GemmMutant::barrierInBranch, "barrierInBranch",
                             Finding::race, "gemm.load_", "gemm.copy_"},
                    GemmCase{GemmMutant::prefetchTooFar, "prefetchTooFar",
                             Finding::openCopies, "gemm.copy_",
                             "gemm.stage_store"}),
    [](const auto &info) { return std::string(info.param.name); });

/// A swizzle on one side reads what was written, in the right order of
/// barriers: only the result and the bank conflicts show it.
TEST(Gemm, SwizzleOnOneSideShowsInResultAndConflicts) {
  EmulatedKernel kernel(gemmKernel(GemmMutant::loadUnswizzled));
  GemmProblem problem(64, 64, 64);
  problem.registerWith(kernel);
  LaunchCounters counters = kernel.clean(problem.words(), problem.blocks());
  EXPECT_GT(problem.maxError(), 0.1);
  EXPECT_GT(counters.site("gemm.load_b", SiteKind::loadMatrix)->bankConflicts,
            0u);
  EXPECT_EQ(counters.site("gemm.load_a", SiteKind::loadMatrix)->bankConflicts,
            0u);
}

} // namespace
