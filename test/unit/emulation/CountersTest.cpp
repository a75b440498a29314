//===- CountersTest.cpp - sectors, requests and banks ---------------------===//
#include "emulation/Counters.h"
#include "EmulatedKernel.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

int passes(const std::function<uint64_t(int)> &address, int bytes,
           uint32_t lanes = ~0u) {
  uint64_t addresses[32];
  for (int lane = 0; lane < 32; ++lane)
    addresses[lane] = address(lane);
  int ideal = 0;
  return bankPasses(addresses, lanes, bytes, ideal);
}

TEST(Counters, Banks) {
  auto pitch = [](uint64_t bytes) {
    return [bytes](int lane) { return lane * bytes; };
  };
  EXPECT_EQ(passes(pitch(4), 4), 1);
  EXPECT_EQ(passes(pitch(2), 2), 1);
  EXPECT_EQ(passes(pitch(0), 4), 1); // one word for all
  EXPECT_EQ(passes(pitch(8), 4), 2);
  EXPECT_EQ(passes(pitch(128), 4), 32);
  EXPECT_EQ(passes(pitch(132), 4), 1);
  EXPECT_EQ(passes(pitch(8), 8), 2);   // two half warps
  EXPECT_EQ(passes(pitch(16), 16), 4); // four quarter warps
  EXPECT_EQ(passes(pitch(128), 16), 32);
  EXPECT_EQ(passes(pitch(144), 16), 4); // a padded row
  EXPECT_EQ(passes(pitch(128), 16, 0xff), 8);
}

struct Pattern {
  const char *type;
  int bytes, alignment;
  int64_t pitch, start;
  uint64_t requests, sectors, distinct;
};

/// One warp reads by a pitch, from 256-aligned memory.
TEST(Counters, Sectors) {
  const Pattern patterns[] = {
      {"f32", 4, 4, 4, 0, 1, 4, 4},
      {"f32", 4, 4, 4, 16, 1, 5, 5},   // across a sector more
      {"f32", 4, 4, 32, 0, 1, 32, 32}, // one sector for each lane
      {"vector<4xf32>", 16, 16, 16, 0, 1, 16, 16},
      {"vector<4xf32>", 16, 4, 16, 0, 4, 64, 16}, // four scalar loads
      {"vector<8xf32>", 32, 32, 32, 0, 2, 64, 32},
      {"i16", 2, 2, 2, 0, 1, 2, 2},
      {"i8", 1, 1, 1, 0, 1, 1, 1},
      {"i32", 4, 4, 0, 0, 1, 1, 1},
  };
  DeviceArray<float> memory(1024);
  for (const Pattern &p : patterns) {
    KernelText k("read", "p", 32, 0);
    V offset = k.add(k.mul(k.lane, p.pitch), p.start);
    k.load(k.at(k.arg(0), offset), p.type, "read", p.alignment);
    EmulatedKernel kernel(k.module());
    kernel.add(memory, "memory", false);
    LaunchCounters counters = kernel.clean({memory.word()}, 2);
    const SiteCounters *site = counters.site("read", SiteKind::load);
    ASSERT_TRUE(site);
    EXPECT_EQ(site->requests, 2 * p.requests) << p.type << " " << p.pitch;
    EXPECT_EQ(site->threads, 64 * p.requests);
    EXPECT_EQ(site->globalBytes, uint64_t(64 * p.bytes));
    EXPECT_EQ(site->sectors, 2 * p.sectors) << p.type << " " << p.pitch;
    EXPECT_EQ(site->distinctSectors, p.distinct);
    EXPECT_EQ(counters.distinctLoadSectors, p.distinct);
  }
}

/// A loop of a different length for each lane: the n-th execution of all lanes
/// is one request.
TEST(Counters, DivergentLoop) {
  KernelText k("loop", "p", 32, 0);
  k.loop(k.add(k.lane, 1), {}, [&](V i, std::vector<V>) {
    V at = k.add(k.mul(i, 32), k.lane);
    k.load(k.at(k.arg(0), k.mul(at, 4)), "f32", "read");
    return std::vector<V>{};
  });
  EmulatedKernel kernel(k.module());
  DeviceArray<float> memory(1024);
  kernel.add(memory, "memory", false);
  for (uint64_t seed : {0, 3}) {
    LaunchOptions options;
    options.seed = seed;
    LaunchCounters counters = kernel.clean({memory.word()}, 1, options);
    const SiteCounters *site = counters.site("read", SiteKind::load);
    EXPECT_EQ(site->requests, 32u);
    EXPECT_EQ(site->threads, 32u * 33 / 2);
    // Iteration i: lanes i to 31.
    uint64_t sectors = 0;
    for (int i = 0; i < 32; ++i)
      sectors += 4 - i / 8;
    EXPECT_EQ(site->sectors, sectors);
  }
}

TEST(Counters, BankConflictsOfASite) {
  for (int pitch : {64, 80}) {
    KernelText k("rows", "p", 32, 32 * 80);
    V at = k.at(k.shared(), k.mul(k.lane, pitch));
    k.store(k.op("llvm.mlir.zero : vector<4xi32>", "vector<4xi32>"), at, "put",
            16);
    EmulatedKernel kernel(k.module());
    LaunchCounters counters = kernel.clean({0}, 3);
    const SiteCounters *site = counters.site("put", SiteKind::store);
    // Pitch 64: 8 rows fall on two groups of banks, 4 passes each for 1.
    EXPECT_EQ(site->sharedPasses, 3u * (pitch == 64 ? 16 : 4));
    EXPECT_EQ(site->bankConflicts, 3u * (pitch == 64 ? 12 : 0));
    EXPECT_EQ(counters.globalStoreBytes, 0u);
  }
}

} // namespace
