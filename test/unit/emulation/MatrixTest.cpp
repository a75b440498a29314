//===- MatrixTest.cpp - mma.sync and ldmatrix against plain loops ---------===//
#include "EmulatedKernel.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace prefill_test;

namespace {

/// One warp: fragments from global memory by the layout of the PTX ISA, D = A B
/// + C.
std::string mmaKernel(const std::string &type) {
  KernelText k("mma", "pppp", 32, 0);
  V group = k.divide(k.lane, 4), pair = k.mul(k.modulo(k.lane, 4), 2);
  auto word = [&](V base, V row, V column, int64_t pitch) {
    V offset = k.mul(k.add(k.mul(row, pitch), column), 2);
    return k.load(k.at(base, offset), "i32", "load");
  };
  std::vector<V> a, b, c;
  for (int i = 0; i < 4; ++i)
    a.push_back(
        word(k.arg(0), k.add(group, i % 2 * 8), k.add(pair, i / 2 * 8), 16));
  for (int i = 0; i < 2; ++i) // B is [n][k]
    b.push_back(word(k.arg(1), group, k.add(pair, i * 8), 16));
  auto place = [&](V base, int i) {
    V row = k.add(group, i / 2 * 8), column = k.add(pair, i % 2);
    return k.at(base, k.mul(k.add(k.mul(row, 8), column), 4));
  };
  for (int i = 0; i < 4; ++i)
    c.push_back(k.load(place(k.arg(2), i), "f32", "load_c"));
  std::vector<V> d = k.mma(type, a, b, c, "mma");
  for (int i = 0; i < 4; ++i)
    k.store(d[i], place(k.arg(3), i), "store");
  return k.module();
}

TEST(Matrix, MmaAgainstLoops) {
  for (std::string type : {"bf16", "f16"}) {
    bool brain = type == "bf16";
    DeviceArray<uint16_t> a(16 * 16), b(8 * 16);
    DeviceArray<float> c(16 * 8), d(16 * 8);
    auto narrow = [&](float x) { return brain ? toBF16(x) : toF16(x); };
    // Small integers over 32: exact in both types and in the sums.
    auto value = [](uint64_t i) {
      return std::round(randomValue(i) * 64) / 32;
    };
    for (size_t i = 0; i < a.size(); ++i)
      a[i] = narrow(value(i));
    for (size_t i = 0; i < b.size(); ++i)
      b[i] = narrow(value(1000 + i));
    for (size_t i = 0; i < c.size(); ++i)
      c[i] = value(2000 + i);
    EmulatedKernel kernel(mmaKernel(type));
    kernel.add(a, "a", false).add(b, "b", false).add(c, "c", false).add(d, "d");
    LaunchCounters counters =
        kernel.clean({a.word(), b.word(), c.word(), d.word()}, 1);
    EXPECT_EQ(counters.matrixInstructions, 1u);
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 8; ++n) {
        float sum = value(2000 + m * 8 + n);
        for (int i = 0; i < 16; ++i)
          sum += value(m * 16 + i) * value(1000 + n * 16 + i);
        EXPECT_EQ(d[m * 8 + n], sum) << type << " " << m << " " << n;
      }
  }
}

/// Four 8x8 matrices lie one after another in shared memory.
std::string loadMatrixKernel(int count, bool transposed, int skip = 0) {
  KernelText k("ldmatrix", "pp", 32, 512);
  V bytes = k.mul(k.lane, 16);
  V row = k.load(k.at(k.arg(0), bytes), "vector<4xi32>", "load", 16);
  k.store(row, k.at(k.shared(), bytes), "stage", 16);
  k.syncWarp("sync");
  V source = k.at(k.shared(), k.add(bytes, skip));
  std::vector<V> words = k.loadMatrix(source, count, transposed, "ldmatrix");
  for (int i = 0; i < count; ++i)
    k.store(words[i], k.at(k.arg(1), k.add(k.mul(k.lane, 16), i * 4)), "store");
  return k.module();
}

TEST(Matrix, LoadMatrixAgainstLoops) {
  DeviceArray<uint16_t> in(4 * 64), out(32 * 8, 0xdead);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = uint16_t(i);
  for (int count : {1, 2, 4})
    for (bool transposed : {false, true}) {
      EmulatedKernel kernel(loadMatrixKernel(count, transposed));
      kernel.add(in, "in", false).add(out, "out");
      kernel.clean({in.word(), out.word()}, 1);
      for (int lane = 0; lane < 32; ++lane)
        for (int matrix = 0; matrix < count; ++matrix)
          for (int half = 0; half < 2; ++half) {
            int i = lane / 4, j = lane % 4 * 2 + half;
            int element = transposed ? j * 8 + i : i * 8 + j;
            EXPECT_EQ(out[lane * 8 + matrix * 2 + half], matrix * 64 + element)
                << "x" << count << (transposed ? " trans" : "");
          }
    }
}

TEST(Matrix, LoadMatrixRowsAreAligned) {
  DeviceArray<uint16_t> in(4 * 64), out(32 * 8);
  EmulatedKernel kernel(loadMatrixKernel(4, false, 8));
  kernel.add(in, "in", false).add(out, "out");
  auto report = kernel.run({in.word(), out.word()}, 1).report;
  ASSERT_TRUE(report);
  EXPECT_EQ(report->finding, Finding::misaligned);
  EXPECT_EQ(report->site, "ldmatrix");
}

} // namespace
