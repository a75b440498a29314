//===- FindingsTest.cpp - small kernels, each with one fault --------------===//
#include "EmulatedKernel.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

/// The report of every seed; their findings and sites are to be as given.
void expectReport(EmulatedKernel &kernel, const std::vector<uint64_t> &words,
                  Finding finding, const std::string &site,
                  const std::string &part = "", int64_t blocks = 1,
                  LaunchOptions options = {}) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    options.seed = seed;
    auto report = kernel.run(words, blocks, options).report;
    ASSERT_TRUE(report) << "seed " << seed;
    std::string message = report->message();
    EXPECT_STREQ(findingName(report->finding), findingName(finding)) << message;
    EXPECT_TRUE(report->site == site || report->otherSite == site) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

/// Also run without the fault: no report under any of these seeds.
void expectClean(EmulatedKernel &kernel, const std::vector<uint64_t> &words,
                 int64_t blocks = 1) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    LaunchOptions options;
    options.seed = seed;
    kernel.clean(words, blocks, options);
  }
}

TEST(Findings, GlobalOutOfBounds) {
  for (bool broken : {false, true}) {
    KernelText k("copy", "ppi", 64, 0);
    V i = k.add(k.mul(k.block, 64), k.tid);
    k.ifThen(k.compare(broken ? "sle" : "slt", i, k.arg(2)), [&] {
      V x = k.load(k.at(k.arg(0), k.mul(i, 4)), "f32", "read");
      k.store(x, k.at(k.arg(1), k.mul(i, 4)), "write");
    });
    EmulatedKernel kernel(k.module());
    DeviceArray<float> in(100), out(100);
    kernel.add(in, "in", false).add(out, "out");
    std::vector<uint64_t> words{in.word(), out.word(), 100};
    if (broken)
      expectReport(kernel, words, Finding::globalOutOfBounds, "read",
                   "block 1, thread 36, read: global access out of bounds: 4 "
                   "bytes 0 bytes past the end of 'in' (400 bytes)",
                   2);
    else
      expectClean(kernel, words, 2);
  }
}

/// A row beyond 2 GiB: its offset in 32 bits is negative. No page of the 8 GiB
/// exists: without data movement only addresses are checked.
TEST(Findings, OffsetIn32Bits) {
  for (bool broken : {false, true}) {
    KernelText k("rows", "pi", 32, 0);
    V row = k.add(k.arg(1), k.lane);
    V offset = k.mul(row, 8192);
    if (broken)
      offset = k.sext(k.binary("mul", k.trunc(row), k.c(8192, "i32")));
    k.load(k.at(k.arg(0), k.mul(offset, 2)), "vector<4xi32>", "row", 16);
    EmulatedKernel kernel(k.module());
    constexpr uint64_t address = 0x200000000000, rows = 1 << 19;
    ASSERT_TRUE(kernel.emulator.memory().add(
        reinterpret_cast<const void *>(address), rows * 8192 * 2, "cache"));
    LaunchOptions options;
    options.countOnly = true;
    std::vector<uint64_t> words{address, rows - 32};
    if (broken)
      expectReport(kernel, words, Finding::globalOutOfBounds, "row",
                   "bytes before 'cache'", 1, options);
    else
      EXPECT_EQ(kernel.clean(words, 1, options).loadSectors, 32u);
  }
}

TEST(Findings, MisalignedAndReadOnly) {
  KernelText k("store", "pi", 32, 256);
  V to = k.at(k.arg(0), k.add(k.mul(k.lane, 16), k.arg(1)));
  k.store(k.op("llvm.mlir.zero : vector<4xi32>", "vector<4xi32>"), to, "store",
          16);
  EmulatedKernel kernel(k.module());
  DeviceArray<int32_t> out(256), constant(256);
  kernel.add(out, "out").add(constant, "constant", false);
  expectClean(kernel, {out.word(), 0});
  expectReport(kernel, {out.word(), 8}, Finding::misaligned, "store",
               "expected an address that is a multiple of 16");
  expectReport(kernel, {constant.word(), 0}, Finding::readOnly, "store",
               "of 'constant'");
}

/// A warp's lanes hand values on through shared memory.
TEST(Findings, MissingSyncWarp) {
  for (bool broken : {false, true})
    for (bool reuse : {false, true}) {
      KernelText k("exchange", "p", 32, 128);
      auto slot = [&](V lane) { return k.at(k.shared(), k.mul(lane, 4)); };
      V neighbour = k.exclusiveOr(k.lane, k.c(1));
      k.store(k.trunc(k.lane), slot(k.lane), "put");
      if (!broken || reuse)
        k.syncWarp("put_done");
      V got = k.load(slot(neighbour), "i32", "get");
      if (reuse) { // write again: after the neighbour has read
        if (!broken)
          k.syncWarp("get_done");
        k.store(got, slot(k.lane), "put_again");
      }
      k.store(got, k.at(k.arg(0), k.mul(k.lane, 4)), "store");
      EmulatedKernel kernel(k.module());
      DeviceArray<int32_t> out(32);
      kernel.add(out, "out");
      if (!broken) {
        expectClean(kernel, {out.word()});
        for (int lane = 0; lane < 32; ++lane)
          EXPECT_EQ(out[lane], lane ^ 1);
        continue;
      }
      for (uint64_t seed = 0; seed < 8; ++seed) {
        LaunchOptions options;
        options.seed = seed;
        auto report = kernel.run({out.word()}, 1, options).report;
        ASSERT_TRUE(report) << seed;
        // A lane that reads first finds nothing written.
        bool unwritten = !reuse && report->finding == Finding::unwrittenRead;
        EXPECT_TRUE(unwritten || report->finding == Finding::race)
            << report->message();
        EXPECT_TRUE(report->site == "get" || report->otherSite == "get")
            << report->message();
      }
    }
}

/// The halves of a chunk are two histories once one of them is accessed alone,
/// and one again after a write of the whole chunk.
TEST(Findings, ChunksAndTheirParts) {
  enum Case { None, PartReadsWhole, WholeReadsPart, PartOverWhole };
  for (Case broken : {None, PartReadsWhole, WholeReadsPart, PartOverWhole}) {
    KernelText k("chunks", "p", 32, 512);
    V own = k.at(k.shared(), k.mul(k.lane, 16));
    V next = k.at(k.shared(), k.mul(k.exclusiveOr(k.lane, k.c(1)), 16));
    V zero = k.op("llvm.mlir.zero : vector<4xi32>", "vector<4xi32>");
    auto sync = [&](bool dropped, const char *site) {
      if (!dropped)
        k.syncWarp(site);
    };
    k.store(zero, own, "whole", 16);
    sync(broken == PartReadsWhole, "sync_a");
    V part = k.load(k.at(next, k.c(8)), "i32", "read_part");
    k.syncWarp("sync_b");
    k.store(part, k.at(own, k.c(4)), "write_part");
    sync(broken == WholeReadsPart, "sync_c");
    k.load(next, "vector<4xi32>", "read_whole", 16);
    sync(broken == PartOverWhole, "sync_d");
    k.store(part, k.at(own, k.c(12)), "write_other");
    k.syncWarp("sync_e");
    k.store(zero, own, "whole_again", 16);
    k.syncWarp("sync_f");
    k.load(next, "vector<4xi32>", "read_again", 16);
    EmulatedKernel kernel(k.module());
    DeviceArray<int32_t> out(1);
    kernel.add(out, "out");
    if (broken == None) {
      expectClean(kernel, {out.word()});
      continue;
    }
    const char *site = broken == PartReadsWhole ? "read_part" : "read_whole";
    for (uint64_t seed = 0; seed < 8; ++seed) {
      LaunchOptions options;
      options.seed = seed;
      auto report = kernel.run({out.word()}, 1, options).report;
      ASSERT_TRUE(report) << seed;
      // A lane that reads first finds nothing written.
      EXPECT_TRUE(report->finding == Finding::race ||
                  (broken == PartReadsWhole &&
                   report->finding == Finding::unwrittenRead))
          << report->message();
      EXPECT_TRUE(report->site == site || report->otherSite == site)
          << report->message();
    }
  }
}

/// A shuffle makes lanes meet, but orders no memory.
TEST(Findings, ShuffleIsNoMemoryBarrier) {
  KernelText k("shuffle", "p", 32, 128);
  auto slot = [&](V lane) { return k.at(k.shared(), k.mul(lane, 4)); };
  k.store(k.trunc(k.lane), slot(k.lane), "put");
  V other = k.shuffle("bfly", k.trunc(k.lane), 1, 31, "shuffle");
  V got = k.load(slot(k.zext(other)), "i32", "get");
  k.store(got, k.at(k.arg(0), k.mul(k.lane, 4)), "store");
  EmulatedKernel kernel(k.module());
  DeviceArray<int32_t> out(32);
  kernel.add(out, "out");
  expectReport(kernel, {out.word()}, Finding::race, "get");
}

TEST(Findings, UnwrittenSharedMemory) {
  KernelText k("accumulate", "p", 64, 512);
  V slot = k.at(k.shared(), k.mul(k.tid, 4));
  V old = k.load(slot, "f32", "accumulator");
  k.store(k.binary("fadd", old, k.f("1.0")), slot, "update");
  EmulatedKernel kernel(k.module());
  DeviceArray<float> out(64);
  kernel.add(out, "out");
  // Also in the second block: what the first one left does not count.
  expectReport(kernel, {out.word()}, Finding::unwrittenRead, "accumulator",
               "was not written in this block", 2);
}

TEST(Findings, SharedOutOfBounds) {
  for (int64_t bytes : {256, 252}) {
    KernelText k("window", "p", 64, bytes);
    k.store(k.trunc(k.tid), k.at(k.shared(), k.mul(k.tid, 4)), "put");
    EmulatedKernel kernel(k.module());
    DeviceArray<float> out(64);
    kernel.add(out, "out");
    if (bytes == 256)
      expectClean(kernel, {out.word()});
    else
      expectReport(kernel, {out.word()}, Finding::sharedOutOfBounds, "put",
                   "thread 63, put: shared access out of bounds: 4 bytes at "
                   "byte 252 of shared memory (the block has 252)");
  }
}

/// Generic pointers: to shared memory by an address space cast.
TEST(Findings, GenericPointers) {
  KernelText k("generic", "p", 32, 128);
  V base = k.op("llvm.addrspacecast " + k.shared().name +
                    " : !llvm.ptr<3> to !llvm.ptr",
                "!llvm.ptr");
  V slot = k.at(base, k.mul(k.lane, 4));
  k.store(k.trunc(k.lane), slot, "put");
  V out = k.op("llvm.addrspacecast " + k.arg(0).name +
                   " : !llvm.ptr<1> to !llvm.ptr",
               "!llvm.ptr");
  k.store(k.load(slot, "i32", "get"), k.at(out, k.mul(k.lane, 4)), "store");
  EmulatedKernel kernel(k.module());
  DeviceArray<int32_t> result(32);
  kernel.add(result, "result");
  expectClean(kernel, {result.word()});
  EXPECT_EQ(result[31], 31);
}

TEST(Findings, MemberMasks) {
  auto build = [](const std::function<void(KernelText &)> &body) {
    KernelText k("mask", "p", 32, 0);
    body(k);
    return k.module();
  };
  DeviceArray<int32_t> out(32);
  auto check = [&](const std::string &module, Finding finding,
                   const std::string &site, const std::string &part) {
    EmulatedKernel kernel(module);
    kernel.add(out, "out");
    expectReport(kernel, {out.word()}, finding, site, part);
  };
  check(build([](KernelText &k) {
          k.shuffle("bfly", k.trunc(k.lane), 1, 31, "exchange", 0x7fffffff);
        }),
        Finding::memberMask, "exchange", "0x7fffffff does not name");
  // Each half names itself, but reads the other.
  check(build([](KernelText &k) {
          V upper = k.compare("uge", k.lane, k.c(16));
          V mask = k.select(upper, k.c(0xffff0000, "i32"), k.c(0xffff, "i32"));
          k.shuffle("bfly", k.trunc(k.lane), k.c(16, "i32"), 31, "exchange",
                    mask);
        }),
        Finding::memberMask, "exchange", "does not name");
  check(build([](KernelText &k) {
          V upper = k.compare("uge", k.lane, k.c(16));
          k.ifThen(
              upper,
              [&] { k.shuffle("bfly", k.trunc(k.lane), 1, 31, "in_then"); },
              [&] { k.shuffle("bfly", k.trunc(k.lane), 1, 31, "in_else"); });
        }),
        Finding::divergentCollective, "in_then", "of the warp waits in");
  // Half of the warp never comes.
  check(build([](KernelText &k) {
          k.ifThen(k.compare("uge", k.lane, k.c(16)),
                   [&] { k.shuffle("bfly", k.trunc(k.lane), 1, 31, "half"); });
          k.syncWarp("rest");
        }),
        Finding::divergentCollective, "half", "of the warp waits in");
}

TEST(Findings, BarriersAndDeadlock) {
  DeviceArray<int32_t> out(32);
  auto check = [&](const std::function<void(KernelText &)> &body,
                   Finding finding, const std::string &site,
                   const std::string &part) {
    KernelText k("barriers", "p", 128, 0);
    body(k);
    EmulatedKernel kernel(k.module());
    kernel.add(out, "out");
    expectReport(kernel, {out.word()}, finding, site, part);
  };
  auto inWarp = [](KernelText &k, int64_t warp,
                   const std::function<void()> &then) {
    k.ifThen(k.compare("eq", k.warp, k.c(warp)), then);
  };
  check(
      [&](KernelText &k) {
        k.ifThen(k.compare("eq", k.tid, k.c(77)), [&] { k.exit(); });
        k.barrier("sync");
      },
      Finding::barrierMisses, "sync",
      "thread 77 has left the kernel without it");
  // Producer and consumer at different barriers.
  check(
      [&](KernelText &k) {
        k.ifThen(
            k.compare("ult", k.tid, k.c(64)),
            [&] { k.namedBarrier(k.c(1), k.c(128), "full"); },
            [&] { k.namedBarrier(k.c(2), k.c(128), "empty"); });
      },
      Finding::deadlock, "full",
      "threads 0-63 wait in nvvm.barrier at full; threads 64-127 wait in "
      "nvvm.barrier at empty");
  check(
      [&](KernelText &k) {
        inWarp(k, 2, [&] { k.namedBarrier(k.c(3), k.c(64), "pair"); });
      },
      Finding::deadlock, "pair",
      "threads 0-63 have exited; threads 64-95 wait in nvvm.barrier at pair");
  // Lanes of one warp at two barriers.
  check(
      [&](KernelText &k) {
        k.ifThen(
            k.compare("eq", k.tid, k.c(5)), [&] { k.barrier("one"); },
            [&] { k.barrier("other"); });
      },
      Finding::divergentCollective, "one", "wait in the barrier at");
  check([&](KernelText &k) { k.namedBarrier(k.c(16), k.c(128), "sixteen"); },
        Finding::invalidOperand, "sixteen", "barrier 16 (expected 0 to 15)");
  check([&](KernelText &k) { k.namedBarrier(k.c(1), k.c(100), "hundred"); },
        Finding::invalidOperand, "hundred", "multiple of 32");
}

/// Half of the block hands data to the other half through a named barrier.
TEST(Findings, NamedBarriersOrderTheirThreads) {
  for (bool broken : {false, true}) {
    KernelText k("named", "p", 128, 256);
    V half = k.divide(k.tid, 64), place = k.modulo(k.tid, 64);
    V id = k.add(broken ? k.modulo(k.warp, 2) : half, 1);
    // Each half uses its own part, with its own barrier of 64 threads; the
    // broken kernel pairs the wrong warps.
    V base = k.add(k.mul(half, 128), k.c(0));
    V slot = k.at(k.shared(), k.add(base, k.mul(place, 2)));
    k.store(k.trunc(k.tid, "i16"), slot, "put");
    k.namedBarrier(id, k.c(64), "pair");
    V mirror = k.sub(k.c(63), place);
    V got =
        k.load(k.at(k.shared(), k.add(base, k.mul(mirror, 2))), "i16", "get");
    k.store(got, k.at(k.arg(0), k.mul(k.tid, 2)), "store");
    EmulatedKernel kernel(k.module());
    DeviceArray<uint16_t> out(128);
    kernel.add(out, "out");
    if (!broken) {
      expectClean(kernel, {out.word()});
      EXPECT_EQ(out[70], 64 + 63 - 6);
      continue;
    }
    for (uint64_t seed = 0; seed < 8; ++seed) {
      LaunchOptions options;
      options.seed = seed;
      auto report = kernel.run({out.word()}, 1, options).report;
      ASSERT_TRUE(report);
      EXPECT_TRUE(report->site == "get" || report->otherSite == "get")
          << report->message();
    }
  }
}

enum class CopyFault {
  none,
  noWait,
  ownerOnly,    ///< another thread reads after its owner's wait alone
  storeOnto,    ///< the destination is stored to while it is copied
  copyTwice,    ///< two copies to one place
  leftOpen,     ///< nobody waits
  tooMany,      ///< source bytes past the row's end
  wrongZeroFill ///< 4 bytes too few of the source
};

/// 20 numbers of 2 bytes by three 16-byte copies, the last one filled up.
std::string copyKernel(CopyFault fault) {
  KernelText k("copies", "pp", 32, 64);
  auto is = [&](CopyFault other) { return fault == other; };
  V place = k.mul(k.lane, 16);
  V left = k.sub(k.c(40), place);
  V sixteen = k.c(is(CopyFault::wrongZeroFill) ? 12 : 16);
  V bytes = is(CopyFault::tooMany)
                ? k.c(16)
                : k.select(k.less(left, sixteen), left, sixteen);
  V to = k.at(k.shared(), place);
  V inside = k.less(k.lane, k.c(3));
  k.ifThen(inside, [&] {
    k.copyAsync(to, k.at(k.arg(0), place), "copy", k.trunc(bytes));
    if (is(CopyFault::copyTwice))
      k.copyAsync(to, k.at(k.arg(0), place), "again", k.trunc(bytes));
    if (is(CopyFault::storeOnto))
      k.store(k.op("llvm.mlir.zero : vector<4xi32>", "vector<4xi32>"), to,
              "clear", 16);
  });
  k.commit();
  if (is(CopyFault::leftOpen))
    return k.module();
  if (!is(CopyFault::noWait))
    k.waitGroup(0, "wait");
  if (!is(CopyFault::ownerOnly))
    k.syncWarp("sync");
  k.ifThen(k.less(k.lane, k.c(24)), [&] {
    V from = k.mul(k.lane, 2);
    V got = k.load(k.at(k.shared(), from), "i16", "get");
    k.store(got, k.at(k.arg(1), from), "store");
  });
  return k.module();
}

TEST(Findings, AsyncCopies) {
  DeviceArray<uint16_t> in(20), out(24);
  for (int i = 0; i < 20; ++i)
    in[i] = uint16_t(i + 1);
  auto check = [&](CopyFault fault, Finding finding, const std::string &site,
                   const std::string &part = "") {
    EmulatedKernel kernel(copyKernel(fault));
    kernel.add(in, "in", false).add(out, "out");
    expectReport(kernel, {in.word(), out.word()}, finding, site, part);
  };
  EmulatedKernel kernel(copyKernel(CopyFault::none));
  kernel.add(in, "in", false).add(out, "out");
  expectClean(kernel, {in.word(), out.word()});
  for (int i = 0; i < 24; ++i)
    EXPECT_EQ(out[i], i < 20 ? i + 1 : 0); // zeros behind the end

  check(CopyFault::noWait, Finding::copyNotAwaited, "copy", "is under way");
  check(CopyFault::storeOnto, Finding::writeDuringCopy, "clear");
  check(CopyFault::copyTwice, Finding::writeDuringCopy, "again");
  check(CopyFault::leftOpen, Finding::openCopies, "copy",
        "1 cp.async of the thread were never waited for");
  check(CopyFault::tooMany, Finding::globalOutOfBounds, "copy",
        "16 bytes at byte 32 of 'in' (40 bytes)");

  // Too few bytes are a matter of values.
  EmulatedKernel wrong(copyKernel(CopyFault::wrongZeroFill));
  wrong.add(in, "in", false).add(out, "out");
  expectClean(wrong, {in.word(), out.word()});
  EXPECT_EQ(out[5], 6);
  EXPECT_EQ(out[6], 0);

  // Without the meeting of the lanes: not ordered, or still under way.
  EmulatedKernel owner(copyKernel(CopyFault::ownerOnly));
  owner.add(in, "in", false).add(out, "out");
  for (uint64_t seed = 0; seed < 8; ++seed) {
    LaunchOptions options;
    options.seed = seed;
    auto report = owner.run({in.word(), out.word()}, 1, options).report;
    ASSERT_TRUE(report);
    EXPECT_TRUE(report->site == "get" || report->otherSite == "get")
        << report->message();
  }
}

TEST(Findings, BlocksThatShareBytes) {
  for (bool broken : {false, true}) {
    KernelText k("blocks", "p", 32, 0);
    V i = k.add(k.mul(k.block, broken ? 31 : 32), k.lane);
    k.store(k.trunc(i), k.at(k.arg(0), k.mul(i, 4)), "store");
    EmulatedKernel kernel(k.module());
    DeviceArray<int32_t> out(64);
    kernel.add(out, "out");
    LaunchOptions options;
    options.checkBlockRaces = true;
    if (broken)
      expectReport(kernel, {out.word()}, Finding::globalRace, "store",
                   "write of 4 bytes at byte 124 of 'out' (256 bytes), which "
                   "block 0 wrote at store",
                   2, options);
    else
      kernel.clean({out.word()}, 2, options);
  }
}

/// Without arithmetic nothing may be counted whose control flow needs it.
TEST(Findings, CountOnlyKnowsWhatSteersControl) {
  KernelText k("steered", "pp", 32, 0);
  // A block table decides which row is read: its entries are loaded all the
  // same.
  V entry = k.load(k.at(k.arg(0), k.mul(k.block, 4)), "i32", "table");
  V row = k.load(k.at(k.arg(1), k.mul(k.zext(entry), 128)), "i32", "row");
  k.store(row, k.at(k.arg(1), k.c(0)), "store");
  EmulatedKernel kernel(k.module());
  DeviceArray<int32_t> table(4), rows(32 * 10, 5);
  for (int i = 0; i < 4; ++i)
    table[i] = 3 * i;
  kernel.add(table, "table", false).add(rows, "rows");
  LaunchOptions options;
  options.countOnly = true;
  LaunchCounters counters =
      kernel.clean({table.word(), rows.word()}, 4, options);
  EXPECT_EQ(counters.site("row", SiteKind::load)->distinctSectors, 4u);
  EXPECT_EQ(rows[0], 5);

  KernelText m("matrix", "p", 32, 512);
  V start = m.at(m.shared(), m.mul(m.lane, 16));
  m.store(m.op("llvm.mlir.zero : vector<4xi32>", "vector<4xi32>"), start,
          "clear", 16);
  m.syncWarp("sync");
  V word = m.loadMatrix(start, 1, false, "words")[0];
  m.ifThen(m.compare("eq", word, m.c(0, "i32")),
           [&] { m.store(word, m.arg(0), "store"); });
  EmulatedKernel steered(m.module());
  auto outcome = steered.emulator.launch(*steered.program, "matrix",
                                         {rows.word()}, 1, options);
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message.find("depends on the result at words"),
            std::string::npos);
}

/// Without arithmetic lanes pass matrix instructions alone; that all pass the
/// same ones is seen where they meet, or where the last of them leaves.
TEST(Findings, CountOnlySeesDivergentMatrixInstructions) {
  enum Case { None, Skipped, OtherSite, SkippedAtExit };
  for (Case broken : {None, Skipped, OtherSite, SkippedAtExit}) {
    KernelText k("matrix", "p", 32, 512);
    auto load = [&](const char *site) {
      V row = k.at(k.shared(), k.mul(k.lane, 16));
      k.loadMatrix(row, 4, false, site);
    };
    V first = k.compare("eq", k.lane, k.c(0));
    V start = k.at(k.shared(), k.mul(k.lane, 16));
    k.store(k.op("llvm.mlir.zero : vector<4xi32>", "vector<4xi32>"), start,
            "clear", 16);
    k.syncWarp("cleared");
    if (broken == OtherSite)
      k.ifThen(first, [&] { load("one"); }, [&] { load("other"); });
    else if (broken == None)
      load("all");
    else
      k.ifThen(first, [&] { load("some"); });
    if (broken != SkippedAtExit)
      k.syncWarp("met");
    EmulatedKernel kernel(k.module());
    DeviceArray<int32_t> out(1);
    kernel.add(out, "out");
    LaunchOptions options;
    options.countOnly = true;
    if (broken == None)
      EXPECT_EQ(kernel.clean({out.word()}, 1, options).matrixLoads, 1u);
    else
      expectReport(kernel, {out.word()}, Finding::divergentCollective,
                   broken == OtherSite ? "other" : "some",
                   "of the warp passed different matrix instructions", 1,
                   options);
  }
}

} // namespace
