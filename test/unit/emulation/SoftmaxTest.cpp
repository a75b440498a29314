//===- SoftmaxTest.cpp - a block reduces a row ----------------------------===//
#include "EmulatedKernel.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace prefill_test;

namespace {

enum class SoftmaxFault { none, padAdmitted, slotsReused, slotsUnwritten };

constexpr int blockThreads = 128, numWarps = blockThreads / 32;

/// out[row] = softmax(in[row][0 .. length)), bf16; one block a row. Rows have
/// `pitch` numbers of f32, those past the length are NaN. Words: in, out,
/// length, pitch.
std::string softmaxKernel(SoftmaxFault fault) {
  KernelText k("softmax", "ppii", blockThreads, numWarps * 4);
  auto is = [&](SoftmaxFault other) { return fault == other; };
  V length = k.arg(2), pitch = k.arg(3);
  V row = k.mul(k.block, pitch);
  V rounds = k.divide(k.add(length, blockThreads - 1), blockThreads);
  auto element = [&](V round) {
    return k.add(k.mul(round, blockThreads), k.tid);
  };
  auto valid = [&](V column) {
    return k.compare(is(SoftmaxFault::padAdmitted) ? "sle" : "slt", column,
                     length);
  };
  auto source = [&](V column) {
    return k.at(k.arg(0), k.mul(k.add(row, column), 4));
  };
  auto pick = [&](const std::string &name, V a, V b) {
    return k.op("llvm." + name + "(" + a.name + ", " + b.name +
                    ") : (f32, f32) -> f32",
                "f32");
  };
  auto combine = [&](bool largest, V a, V b) {
    return largest ? pick("intr.maximum", a, b) : k.binary("fadd", a, b);
  };
  /// Over the lanes, then over the warps.
  auto reduce = [&](bool largest, V value, const std::string &name) {
    for (int step = 16; step >= 1; step /= 2)
      value = combine(largest, value,
                      k.shuffle("bfly", value, step, 31, name + ".shuffle"));
    V first = k.compare("eq", k.lane, k.c(0));
    V some = is(SoftmaxFault::slotsUnwritten)
                 ? k.less(k.warp, k.c(numWarps - 1))
                 : k.c(1, "i1");
    k.ifThen(k.binary("and", first, some), [&] {
      k.store(value, k.at(k.shared(), k.mul(k.warp, 4)), name + ".put");
    });
    k.barrier(name + ".sync");
    V result = k.load(k.shared(), "f32", name + ".get");
    for (int warp = 1; warp < numWarps; ++warp)
      result = combine(
          largest, result,
          k.load(k.at(k.shared(), k.c(warp * 4)), "f32", name + ".get"));
    return result;
  };
  auto scaled = [&](V x, V largest) {
    V difference = k.binary("fsub", x, largest);
    V exponent = k.binary("fmul", difference, k.f("1.44269504"));
    return k.op("llvm.call_intrinsic \"llvm.nvvm.ex2.approx.ftz.f32\"(" +
                    exponent.name + ") : (f32) -> f32",
                "f32");
  };
  auto overRow = [&](V start, const std::function<V(V, V)> &body) {
    return k.loop(rounds, {start}, [&](V round, std::vector<V> carried) {
      V column = element(round);
      V inside = valid(column);
      V x = k.load(source(k.select(inside, column, k.c(0))), "f32", "row");
      return std::vector<V>{k.select(inside, body(carried[0], x), carried[0])};
    })[0];
  };
  V largest = overRow(k.f("-3.0e38"),
                      [&](V best, V x) { return combine(true, best, x); });
  largest = reduce(true, largest, "max");
  if (!is(SoftmaxFault::slotsReused))
    k.barrier("slots_free");
  V sum = overRow(k.f("0.0"), [&](V total, V x) {
    return k.binary("fadd", total, scaled(x, largest));
  });
  sum = reduce(false, sum, "sum");
  V inverse = k.op("nvvm.rcp.approx.ftz.f " + sum.name + " : f32", "f32");
  k.loop(rounds, {}, [&](V round, std::vector<V>) {
    V column = element(round);
    k.ifThen(k.less(column, length), [&] {
      V x = k.load(source(column), "f32", "row");
      V y = k.toBF16(k.binary("fmul", scaled(x, largest), inverse));
      k.store(y, k.at(k.arg(1), k.mul(k.add(row, column), 2)), "store");
    });
    return std::vector<V>{};
  });
  return k.module();
}

struct Rows {
  Rows(int64_t count, int64_t length, int64_t pitch)
      : count(count), length(length), pitch(pitch), in(count * pitch, NAN),
        out(count * pitch, 0xabcd) {
    for (int64_t row = 0; row < count; ++row)
      for (int64_t i = 0; i < length; ++i)
        in[row * pitch + i] = 16 * randomValue(row * 977 + i);
  }
  std::vector<uint64_t> words() const {
    return {in.word(), out.word(), uint64_t(length), uint64_t(pitch)};
  }
  bool matches() const {
    for (int64_t row = 0; row < count; ++row) {
      const float *x = &in[row * pitch];
      double largest = -1e30, sum = 0;
      for (int64_t i = 0; i < length; ++i)
        largest = std::max(largest, double(x[i]));
      for (int64_t i = 0; i < length; ++i)
        sum += std::exp(x[i] - largest);
      for (int64_t i = 0; i < pitch; ++i) {
        if (i >= length) {
          if (out[row * pitch + i] != 0xabcd)
            return false;
          continue;
        }
        double expected = std::exp(x[i] - largest) / sum;
        double got = fromBF16(out[row * pitch + i]);
        if (!(std::abs(got - expected) <= 0.005 * expected + 1e-6))
          return false;
      }
    }
    return true;
  }
  int64_t count, length, pitch;
  DeviceArray<float> in;
  DeviceArray<uint16_t> out;
};

TEST(Softmax, AgainstLoops) {
  EmulatedKernel kernel(softmaxKernel(SoftmaxFault::none));
  for (int64_t length : {1, 31, 127, 128, 129, 300}) {
    Rows rows(5, length, 304);
    kernel.emulator.memory().clear();
    kernel.add(rows.in, "in", false).add(rows.out, "out");
    for (uint64_t seed = 0; seed < 8; ++seed) {
      LaunchOptions options;
      options.seed = seed;
      for (size_t i = 0; i < rows.out.size(); ++i)
        rows.out[i] = 0xabcd;
      LaunchCounters counters = kernel.clean(rows.words(), rows.count, options);
      EXPECT_TRUE(rows.matches()) << length << " seed " << seed;
      EXPECT_EQ(counters.shuffles, uint64_t(5 * numWarps * 10));
      EXPECT_EQ(counters.barriers, uint64_t(5 * numWarps * 3));
    }
  }
}

TEST(Softmax, PadAdmitted) {
  EmulatedKernel kernel(softmaxKernel(SoftmaxFault::padAdmitted));
  Rows rows(2, 100, 104);
  kernel.add(rows.in, "in", false).add(rows.out, "out");
  // A NaN in the row's padding reaches the results.
  kernel.clean(rows.words(), rows.count);
  EXPECT_FALSE(rows.matches());
  // Without padding it is the end of the memory.
  Rows tight(2, 100, 100);
  kernel.emulator.memory().clear();
  kernel.add(tight.in, "in", false).add(tight.out, "out");
  auto report = kernel.run(tight.words(), tight.count).report;
  ASSERT_TRUE(report);
  EXPECT_EQ(report->finding, Finding::globalOutOfBounds);
  EXPECT_EQ(report->site, "row");
  EXPECT_EQ(report->block, 1);
  EXPECT_EQ(report->thread, 100);
}

TEST(Softmax, SlotsOverwrittenWhileRead) {
  EmulatedKernel kernel(softmaxKernel(SoftmaxFault::slotsReused));
  Rows rows(2, 100, 104);
  kernel.add(rows.in, "in", false).add(rows.out, "out");
  for (uint64_t seed = 0; seed < 8; ++seed) {
    LaunchOptions options;
    options.seed = seed;
    auto report = kernel.run(rows.words(), rows.count, options).report;
    ASSERT_TRUE(report);
    EXPECT_EQ(report->finding, Finding::race) << report->message();
    EXPECT_TRUE(report->site == "sum.put" || report->otherSite == "sum.put")
        << report->message();
  }
}

TEST(Softmax, SlotNobodyWrote) {
  EmulatedKernel kernel(softmaxKernel(SoftmaxFault::slotsUnwritten));
  Rows rows(2, 100, 104);
  kernel.add(rows.in, "in", false).add(rows.out, "out");
  auto report = kernel.run(rows.words(), rows.count).report;
  ASSERT_TRUE(report);
  EXPECT_EQ(report->finding, Finding::unwrittenRead) << report->message();
  EXPECT_EQ(report->site, "max.get");
  EXPECT_NE(report->message().find("byte 12 of shared memory"),
            std::string::npos);
}

} // namespace
