//===- CollectivesTest.cpp - shuffles, votes, threads and conversions -----===//
#include "EmulatedKernel.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace prefill_test;

namespace {

/// out[lane] = shfl(kind, lane * 3 + 1, offset, clamp)
std::vector<uint32_t> shuffled(const std::string &kind, int64_t offset,
                               int64_t clamp) {
  KernelText k("shuffle", "p", 32, 0);
  V value = k.trunc(k.add(k.mul(k.lane, 3), 1));
  V result = k.shuffle(kind, value, offset, clamp, "shuffle");
  k.store(result, k.at(k.arg(0), k.mul(k.lane, 4)), "store");
  EmulatedKernel kernel(k.module());
  DeviceArray<uint32_t> out(32);
  kernel.add(out, "out");
  EXPECT_EQ(kernel.clean({out.word()}, 1).shuffles, 1u);
  return {out.data(), out.data() + 32};
}

TEST(Collectives, ShuffleKinds) {
  // CUDA's __shfl_*_sync with a width: the clamp holds 32 - width.
  struct Case {
    std::string kind;
    int64_t offset, clamp;
    int (*source)(int lane);
  };
  const Case cases[] = {
      {"bfly", 5, 31, [](int lane) { return lane ^ 5; }},
      {"up", 3, 0, [](int lane) { return lane >= 3 ? lane - 3 : lane; }},
      {"down", 4, 31, [](int lane) { return lane < 28 ? lane + 4 : lane; }},
      {"idx", 7, 31, [](int) { return 7; }},
      {"down", 2, 31 | 24 << 8, // width 8
       [](int lane) { return lane % 8 < 6 ? lane + 2 : lane; }},
      {"up", 2, 24 << 8,
       [](int lane) { return lane % 8 >= 2 ? lane - 2 : lane; }},
      {"idx", 9, 31 | 24 << 8, [](int lane) { return lane / 8 * 8 + 1; }},
  };
  for (const Case &c : cases) {
    std::vector<uint32_t> out = shuffled(c.kind, c.offset, c.clamp);
    for (int lane = 0; lane < 32; ++lane)
      EXPECT_EQ(out[lane], c.source(lane) * 3u + 1)
          << c.kind << " " << c.offset << " lane " << lane;
  }
}

TEST(Collectives, VoteAndRedux) {
  KernelText k("vote", "pp", 32, 0);
  V value = k.load(k.at(k.arg(0), k.mul(k.lane, 4)), "i32", "load");
  V positive = k.compare("sgt", value, k.c(0, "i32"));
  V mask = k.c(0xffffffff, "i32");
  V out = k.at(k.arg(1), k.mul(k.lane, 64));
  int slot = 0;
  auto save = [&](V result) {
    if (result.type == "i1")
      result = k.op("llvm.zext " + result.name + " : i1 to i32", "i32");
    k.store(result, k.at(out, k.c(4 * slot++)), "store");
  };
  for (std::string kind : {"any", "all", "uni"})
    save(k.op("nvvm.vote.sync " + kind + " " + mask.name + ", " +
                  positive.name + " -> i1",
              "i1", "vote"));
  save(k.op("nvvm.vote.sync ballot " + mask.name + ", " + positive.name +
                " -> i32",
            "i32", "vote"));
  for (std::string kind :
       {"add", "and", "or", "xor", "max", "min", "umax", "umin"})
    save(k.op("nvvm.redux.sync " + kind + " " + value.name + ", " + mask.name +
                  " : i32 -> i32",
              "i32", "redux"));
  EmulatedKernel kernel(k.module());
  DeviceArray<int32_t> in(32), results(32 * 16);
  for (int i = 0; i < 32; ++i)
    in[i] = int32_t(randomValue(i) * 1e9f);
  kernel.add(in, "in", false).add(results, "results");
  kernel.clean({in.word(), results.word()}, 1);

  uint32_t ballot = 0, sum = 0, all = ~0u, any = 0, odd = 0;
  int32_t high = INT32_MIN, low = INT32_MAX;
  uint32_t uhigh = 0, ulow = ~0u;
  for (int i = 0; i < 32; ++i) {
    auto bits = uint32_t(in[i]);
    ballot |= uint32_t(in[i] > 0) << i;
    sum += bits, all &= bits, any |= bits, odd ^= bits;
    high = std::max(high, in[i]), low = std::min(low, in[i]);
    uhigh = std::max(uhigh, bits), ulow = std::min(ulow, bits);
  }
  ASSERT_TRUE(ballot != 0 && ballot != ~0u);
  const uint32_t expected[] = {1,     0,   0,   ballot,         sum,
                               all,   any, odd, uint32_t(high), uint32_t(low),
                               uhigh, ulow};
  for (int lane : {0, 13, 31})
    for (int i = 0; i < 12; ++i)
      EXPECT_EQ(uint32_t(results[lane * 16 + i]), expected[i]) << i;
}

/// The halves of a warp shuffle at different times, each with its own mask.
TEST(Collectives, HalfWarpsMeetApart) {
  KernelText k("halves", "p", 32, 0);
  V upper = k.compare("uge", k.lane, k.c(16));
  V out = k.at(k.arg(0), k.mul(k.lane, 4));
  auto half = [&](int64_t mask, const std::string &site) {
    k.store(k.shuffle("bfly", k.trunc(k.lane), 1, 31, site, mask), out,
            "store");
  };
  k.ifThen(
      upper, [&] { half(0xffff0000, "upper"); },
      [&] { half(0xffff, "lower"); });
  EmulatedKernel kernel(k.module());
  DeviceArray<int32_t> result(32);
  kernel.add(result, "result");
  for (uint64_t seed = 0; seed < 8; ++seed) {
    LaunchOptions options;
    options.seed = seed;
    kernel.clean({result.word()}, 1, options);
    for (int lane = 0; lane < 32; ++lane)
      EXPECT_EQ(result[lane], lane ^ 1);
  }
}

/// Each thread writes its number; the block's sum goes through shared memory.
TEST(Collectives, AnyNumberOfThreads) {
  for (int threads : {1, 2, 31, 32, 33, 64, 96, 200, 1024}) {
    KernelText k("threads", "pp", threads, threads * 4);
    V linear = k.add(k.mul(k.block, threads), k.tid);
    k.store(k.trunc(linear), k.at(k.arg(0), k.mul(linear, 4)), "number");
    k.store(k.trunc(linear), k.at(k.shared(), k.mul(k.tid, 4)), "stage");
    k.barrier("sync");
    V next = k.modulo(k.add(k.tid, 1), threads);
    V neighbour = k.load(k.at(k.shared(), k.mul(next, 4)), "i32", "neighbour");
    k.store(neighbour, k.at(k.arg(1), k.mul(linear, 4)), "store");
    EmulatedKernel kernel(k.module());
    constexpr int blocks = 5;
    DeviceArray<int32_t> numbers(threads * blocks, -1);
    DeviceArray<int32_t> neighbours(threads * blocks, -1);
    kernel.add(numbers, "numbers").add(neighbours, "neighbours");
    for (uint64_t seed : {0, 1, 2}) {
      LaunchOptions options;
      options.seed = seed;
      options.checkBlockRaces = seed == 2;
      kernel.clean({numbers.word(), neighbours.word()}, blocks, options);
      for (int i = 0; i < threads * blocks; ++i) {
        EXPECT_EQ(numbers[i], i);
        EXPECT_EQ(neighbours[i],
                  i / threads * threads + (i % threads + 1) % threads);
      }
    }
  }
}

TEST(Collectives, ConversionsAndApproximations) {
  KernelText k("convert", "ppp", 32, 0);
  V x = k.load(k.at(k.arg(0), k.mul(k.lane, 4)), "f32", "load");
  V narrow = k.toBF16(x);
  k.store(narrow, k.at(k.arg(1), k.mul(k.lane, 2)), "store_bf16");
  V pair = k.op("llvm.mlir.poison : vector<2xf32>", "vector<2xf32>");
  pair = k.op("llvm.insertelement " + x.name + ", " + pair.name + "[" +
                  k.c(0, "i32").name + " : i32] : vector<2xf32>",
              "vector<2xf32>");
  pair = k.op("llvm.insertelement " + x.name + ", " + pair.name + "[" +
                  k.c(1, "i32").name + " : i32] : vector<2xf32>",
              "vector<2xf32>");
  V packed =
      k.op("llvm.fptrunc " + pair.name + " : vector<2xf32> to vector<2xbf16>",
           "vector<2xbf16>");
  V out = k.at(k.arg(2), k.mul(k.lane, 32));
  auto save = [&](V value, int slot) {
    k.store(value, k.at(out, k.c(4 * slot)), "store");
  };
  save(k.bitcast(packed, "i32"), 0);
  save(k.fromBF16(narrow), 1);
  auto intrinsic = [&](const std::string &name) {
    return k.op("llvm.call_intrinsic \"" + name + "\"(" + x.name +
                    ") : (f32) -> f32",
                "f32");
  };
  save(intrinsic("llvm.nvvm.ex2.approx.ftz.f32"), 2);
  save(intrinsic("llvm.nvvm.rcp.approx.ftz.f"), 3);
  save(intrinsic("llvm.nvvm.rsqrt.approx.ftz.f"), 4);
  V half = k.op("llvm.fptrunc " + x.name + " : f32 to f16", "f16");
  save(k.op("llvm.fpext " + half.name + " : f16 to f32", "f32"), 5);
  EmulatedKernel kernel(k.module());
  DeviceArray<float> in(32), results(32 * 8);
  DeviceArray<uint16_t> brain(32);
  for (int i = 0; i < 32; ++i)
    in[i] = 0.01f + std::fabs(randomValue(i)) * float(1 << i % 8);
  in[0] = 1.0f + 0x1p-8f; // a tie, to even
  in[1] = 1.0f + 0x3p-8f;
  in[2] = NAN;
  kernel.add(in, "in", false).add(brain, "brain").add(results, "results");
  kernel.clean({in.word(), brain.word(), results.word()}, 1);
  EXPECT_EQ(brain[2], 0x7fff);
  for (int i = 0; i < 32; ++i) {
    if (i == 2)
      continue;
    uint16_t rounded = toBF16(in[i]);
    uint32_t pairBits;
    std::memcpy(&pairBits, &results[i * 8], 4);
    EXPECT_EQ(brain[i], rounded);
    EXPECT_EQ(pairBits, rounded * 0x10001u);
    EXPECT_EQ(results[i * 8 + 1], fromBF16(rounded));
    EXPECT_NEAR(results[i * 8 + 2] / std::exp2(in[i]), 1, 1e-6);
    EXPECT_NEAR(results[i * 8 + 3] * in[i], 1, 1e-6);
    EXPECT_NEAR(results[i * 8 + 4] * std::sqrt(in[i]), 1, 1e-6);
    EXPECT_NEAR(results[i * 8 + 5] / in[i], 1, 1e-3);
  }
}

TEST(Collectives, WhatTheCompilerRefuses) {
  auto refused = [](const std::string &line) {
    KernelText k("refused", "p", 32, 0);
    k.line(line);
    return EmulatedKernel::errorOf(k.module());
  };
  EXPECT_NE(refused("nvvm.cluster.arrive").find("nvvm.cluster.arrive"),
            std::string::npos);
  EXPECT_NE(refused("%x = nvvm.read.ptx.sreg.smid : i32").find("sreg.smid"),
            std::string::npos);
  EXPECT_NE(refused("%c = llvm.mlir.constant(1.0 : f32) : f32\n"
                    "%x = llvm.intr.exp2(%c) : (f32) -> f32")
                .find("llvm.intr.exp2"),
            std::string::npos);
  EXPECT_NE(refused("%c = llvm.mlir.constant(1.0 : bf16) : bf16\n"
                    "%x = llvm.fadd %c, %c : bf16")
                .find("arithmetic on bf16"),
            std::string::npos);
  EXPECT_NE(refused("llvm.inline_asm \"bar.sync 0;\", \"\" : () -> ()")
                .find("llvm.inline_asm"),
            std::string::npos);
  EXPECT_NE(EmulatedKernel::errorOf("llvm.func @k() attributes {nvvm.kernel, "
                                    "prefill.shared_bytes = 0 : i64} {\n"
                                    "llvm.return\n}")
                .find("has no prefill.block_threads"),
            std::string::npos);
  EXPECT_NE(EmulatedKernel::errorOf("llvm.func @k(%a: i32) attributes "
                                    "{nvvm.kernel, prefill.block_threads = 32 "
                                    ": i32, prefill.shared_bytes = 0 : i64} {\n"
                                    "llvm.return\n}")
                .find("one word each"),
            std::string::npos);
}

/// A gpu.module with several kernels: each has its own sites and counters.
TEST(Collectives, SeveralKernelsInAGpuModule) {
  auto numbers = [](const std::string &name, int threads, int64_t first) {
    KernelText k(name, "p", threads, 0);
    V value = k.add(k.trunc(k.tid), first);
    k.store(value, k.at(k.arg(0), k.mul(k.tid, 4)), name + ".store");
    return k.text();
  };
  EmulatedKernel kernel(
      "gpu.module @kernels {\n" +
      KernelText::module({numbers("low", 32, 0), numbers("high", 64, 1000)}) +
      "}\n");
  DeviceArray<int32_t> out(64, -1);
  kernel.add(out, "out");
  ASSERT_TRUE(kernel.program);
  auto outcome =
      kernel.emulator.launch(*kernel.program, "high", {out.word()}, 1);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(out[63], 1063);
  EXPECT_EQ(outcome->counters.sites.size(), 1u);
  EXPECT_EQ(outcome->counters.site("high.store", SiteKind::store)->requests,
            2u);
  outcome = kernel.emulator.launch(*kernel.program, "low", {out.word()}, 1);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(out[31], 31);
  EXPECT_EQ(out[32], 1032);
  EXPECT_EQ(outcome->counters.site("high.store", SiteKind::store), nullptr);
}

TEST(Collectives, WrongLaunchesAreErrors) {
  KernelText k("launch", "pi", 32, 0);
  EmulatedKernel kernel(k.module());
  auto errorOf = [&](const std::string &name, std::vector<uint64_t> words,
                     int64_t blocks) {
    auto outcome = kernel.emulator.launch(*kernel.program, name, words, blocks);
    return outcome ? "" : outcome.error().message;
  };
  EXPECT_EQ(errorOf("launch", {0, 0}, 1), "");
  EXPECT_EQ(errorOf("launch", {0, 0}, 0), "");
  EXPECT_EQ(errorOf("other", {}, 1), "emulated kernel 'other' does not exist");
  EXPECT_EQ(errorOf("launch", {0}, 1),
            "emulated kernel 'launch' takes 2 words (given 1)");
  EXPECT_NE(errorOf("launch", {0, 0}, -1), "");
  std::vector<uint8_t> garbage(100);
  EXPECT_FALSE(Program::load(garbage.data(), garbage.size(), "garbage"));
}

} // namespace
