//===- HostThreadsTest.cpp - blocks that run side by side on the host -----===//
#include "EmulatedKernel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

/// Every thread of every block writes its number.
std::string numbering(int threads) {
  KernelText k("number", "p", threads, 0);
  V index = k.add(k.mul(k.block, threads), k.tid);
  k.store(index, k.at(k.arg(0), k.mul(index, 8)), "number");
  return k.module();
}

// More threads of the host than it has processors, and more than the system
// would allow stacks for: 512 times 1024 take 1048576 mappings.
TEST(HostThreads, ManyMoreThanStacks) {
  constexpr int threads = 1024;
  for (int hostThreads : {1, 2, 127, 512})
    for (int64_t blocks : {int64_t(1), int64_t(3), int64_t(200)}) {
      EmulatedKernel kernel(numbering(threads), hostThreads);
      DeviceArray<int64_t> out(size_t(blocks * threads), -1);
      kernel.add(out, "out");
      LaunchCounters counters = kernel.clean({out.word()}, blocks);
      EXPECT_EQ(counters.globalStoreBytes, uint64_t(blocks * threads * 8));
      for (size_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(out[i], int64_t(i)) << hostThreads << " threads";
    }
}

// Blocks from the fourth on write behind the array; all host threads run into
// one.
TEST(HostThreads, TheLowestFindingIsReported) {
  constexpr int threads = 32;
  for (int hostThreads : {1, 2, 64}) {
    EmulatedKernel kernel(numbering(threads), hostThreads);
    DeviceArray<int64_t> out(4 * threads);
    kernel.add(out, "out");
    LaunchOutcome outcome = kernel.run({out.word()}, 1000);
    ASSERT_TRUE(outcome.report);
    EXPECT_EQ(outcome.report->block, 4);
    EXPECT_EQ(outcome.report->thread, 0);
  }
}

// More than the address space holds.
TEST(HostThreads, RefusedStacksAreAnErrorThatSaysHowMany) {
  FiberStacks stacks;
  EXPECT_TRUE(bool(stacks.reserve(8)));
  auto refused = stacks.reserve(INT32_MAX);
  ASSERT_FALSE(bool(refused));
  EXPECT_THAT(refused.error().message,
              testing::MatchesRegex("mmap of [0-9]+ bytes for 2147483647 "
                                    "stacks: Cannot allocate memory"));
}

} // namespace
