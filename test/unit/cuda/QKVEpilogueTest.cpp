//===- QKVEpilogueTest.cpp - row scale, bias, QK-norm, RoPE, KV append ----===//
#include "QKVProblem.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

using Parameter = std::tuple<Element, QKVCase>;

class QKVEpilogueTest : public testing::TestWithParam<Parameter> {};

TEST_P(QKVEpilogueTest, MatchesPlainLoops) {
  auto [element, c] = GetParam();
  QKVProblem problem(c, element);
  CudaKernel kernel(problem.text());
  ASSERT_TRUE(kernel.ok());
  problem.check(kernel, {0, 1, 2});
}

// Heads of powers of two and others, rotary halves that end within a chunk,
// MQA, GQA and MHA, tiles of one head and of several, every layout.
const QKVCase kCases[] = {
    {"mha_d32", 2, 2, 32, 64, 64, {32}},
    {"gqa_d64_bias_head_major",
     4,
     2,
     64,
     64,
     128,
     {64},
     false,
     true,
     true,
     "head_major"},
    {"gqa3_d128_qknorm_paged",
     6,
     2,
     128,
     128,
     128,
     {128},
     true,
     false,
     true,
     "paged_nhd"},
    {"mqa_d40_interleaved_paged",
     3,
     1,
     40,
     16,
     40,
     {40, true},
     true,
     true,
     true,
     "paged_nhd"},
    {"gqa_d24_partial", 4, 2, 24, 64, 48, {12}, true, true, true, "head_major"},
    {"gqa3_d24", 3, 1, 24, 32, 24, {24}, true, false, true, "paged_nhd"},
    {"d64_partial_interleaved",
     2,
     1,
     64,
     32,
     64,
     {20, true},
     false,
     false,
     false},
    {"d64_odd_rotary", 2, 1, 64, 64, 64, {50}},
    {"d80_no_rope", 2, 1, 80, 16, 80, {0}, false, true, false, "paged_nhd"},
    {"d16_eight_heads", 16, 8, 16, 64, 128, {16}, true, false},
    {"d256_qknorm", 2, 1, 256, 64, 256, {128}, true, false, true, "head_major"},
    {.name = "late_positions",
     .queryHeads = 2,
     .kvHeads = 1,
     .headDim = 32,
     .blockM = 64,
     .blockN = 32,
     .rope = {32},
     .firstPosition = 40000},
};

// The tile that the projection of an 8B model has: rows of three of them, the
// last one cut, by four of columns.
const QKVCase kLargeTile = {.name = "d128_tile_128x256",
                            .queryHeads = 4,
                            .kvHeads = 2,
                            .headDim = 128,
                            .blockM = 128,
                            .blockN = 256,
                            .rope = {128},
                            .layout = "paged_nhd",
                            .rows = 300,
                            .hidden = 256};

TEST(QKVLargeTile, MatchesPlainLoops) {
  QKVProblem problem(kLargeTile, Element::BF16);
  CudaKernel kernel(problem.text());
  ASSERT_TRUE(kernel.ok());
  problem.check(kernel, {3});
}

INSTANTIATE_TEST_SUITE_P(Types, QKVEpilogueTest,
                         testing::Combine(testing::Values(Element::BF16,
                                                          Element::F16),
                                          testing::ValuesIn(kCases)),
                         [](const auto &info) {
                           return dtype(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param).name;
                         });

} // namespace
