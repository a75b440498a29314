#include "ReferenceTesting.h"
#include <cmath>

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

TEST(RowEvaluatorsTest, EmbedTakesRows) {
  Tensor table({3, 2}, {0, 1, 10, 11, 20, 21});
  expectValues(get(embed(makeSequenceBatch(0, {2, 0}), table)), {20, 21, 0, 1});
  EXPECT_THAT(messageOf(embed(makeSequenceBatch(0, {0, 3}), table)),
              HasSubstr("token 3 of row 1 is outside the vocabulary of 3"));
  EXPECT_THAT(messageOf(embed(makeSequenceBatch(0, {-1}), table)),
              HasSubstr("token -1"));
}

TEST(RowEvaluatorsTest, RMSNormOfAllChannels) {
  // mean(9, 16) = 12.5
  Tensor y = rmsNorm(Tensor({1, 2}, {3, 4}), Tensor({2}, {1, 2}), 0);
  expectValues(y, {3 / std::sqrt(12.5), 8 / std::sqrt(12.5)});
}

TEST(RowEvaluatorsTest, RMSNormEpsIsInsideTheRoot) {
  Tensor y = rmsNorm(Tensor({1, 1}, {0.001}), Tensor({1}, {1}), 3e-6);
  expectValues(y, {0.001 / std::sqrt(4e-6)});
}

TEST(RowEvaluatorsTest, RMSNormOfEachHead) {
  Tensor y = rmsNorm(Tensor({1, 4}, {3, 3, 5, -5}), Tensor({2}, {1, 2}), 0);
  expectValues(y, {1, 2, 1, -2});
}

TEST(RowEvaluatorsTest, LinearMultipliesByTheTranspose) {
  // Five columns: the loop over four at a time and its rest.
  Tensor x({2, 2}, {1, 2, 3, 4});
  Tensor w({5, 2}, {1, 0, 0, 1, 1, 1, 2, -1, 10, 100});
  expectValues(linear(x, w, nullptr), {1, 2, 3, 0, 210, 3, 4, 7, 2, 430}, 0);
  Tensor bias({5}, {1, 2, 3, 4, 5});
  expectValues(linear(x, w, &bias), {2, 4, 6, 4, 215, 4, 6, 10, 6, 435}, 0);
}

TEST(RowEvaluatorsTest, GatedActSilu) {
  Tensor y = gatedAct(GateKind::Silu, Tensor({1, 3}, {0, std::log(3.0), -1e4}),
                      Tensor({1, 3}, {7, 2, 1}));
  // sigmoid(ln 3) = 3/4
  expectValues(y, {0, 1.5 * std::log(3.0), 0});
}

TEST(RowEvaluatorsTest, GatedActGeluTanh) {
  Tensor y = gatedAct(GateKind::GeluTanh, Tensor({1, 3}, {0, 1, 20}),
                      Tensor({1, 3}, {1, 2, 1}));
  // torch.nn.functional.gelu(1, approximate="tanh") = 0.8411919906082768
  expectValues(y, {0, 2 * 0.8411919906082768, 20});
}

TEST(RowEvaluatorsTest, AddScaleBias) {
  Tensor x({2, 2}, {1, 2, 3, 4});
  expectValues(add(x, x), {2, 4, 6, 8}, 0);
  expectValues(scale(x, -0.5), {-0.5, -1, -1.5, -2}, 0);
  expectValues(biasAdd(x, Tensor({2}, {10, 20})), {11, 22, 13, 24}, 0);
}

TEST(RowEvaluatorsTest, SelectRowsFollowsTheIndices) {
  Batch batch = makeSequenceBatch(0, {0, 0, 0});
  batch.logitsIndices = {2, 0};
  Tensor x({3, 1}, {5, 6, 7});
  expectValues(selectRows(x, batch), {7, 5}, 0);
  batch.logitsIndices = {};
  EXPECT_THAT(selectRows(x, batch).shape, ElementsAre(0, 1));
}

// known-failures.md 21: the parts of a fused QKV are not thirds.
TEST(RowEvaluatorsTest, SplitTakesUnequalWidths) {
  std::vector<Tensor> parts =
      split(Tensor({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), {2, 1, 1});
  ASSERT_EQ(parts.size(), 3u);
  expectValues(parts[0], {1, 2, 5, 6}, 0);
  expectValues(parts[1], {3, 7}, 0);
  expectValues(parts[2], {4, 8}, 0);
}

TEST(RowEvaluatorsTest, DeinterleaveDropsPadding) {
  // Width 3, runs of 2: g0 g1 u0 u1 g2 - u2 -
  Tensor x({1, 8}, {1, 2, 10, 20, 3, -99, 30, -99});
  auto [first, second] = deinterleave(x, 2, 3);
  expectValues(first, {1, 2, 3}, 0);
  expectValues(second, {10, 20, 30}, 0);
}

TEST(RowEvaluatorsTest, RowSumsqInPartials) {
  Tensor x({2, 4}, {1, 2, 3, 4, 0, 0, 1, 1});
  expectValues(rowSumsq(x, 1), {30, 2}, 0);
  expectValues(rowSumsq(x, 2), {5, 25, 0, 2}, 0);
}

TEST(RowEvaluatorsTest, RowRMSScaleAddsPartials) {
  Tensor y =
      rowRMSScale(Tensor({1, 2}, {2, -4}), Tensor({1, 2}, {5, 27}), 0, 8);
  expectValues(y, {1, -2});
}

TEST(RowEvaluatorsTest, NormInTwoPartsIsTheNorm) {
  Tensor x({1, 4}, {1, 2, -3, 4}), ones({4}, {1, 1, 1, 1});
  Tensor whole = rmsNorm(x, ones, 1e-5);
  expectValues(rowRMSScale(x, rowSumsq(x, 2), 1e-5, 4), whole.values);
}

// The largest number of a row is 127 steps; ties go to the even integer.
TEST(RowEvaluatorsTest, QuantizeRowsByHand) {
  QuantizedRows q = quantizeRows(
      Tensor({4, 4}, {254, -254, 3, 5,       // steps of 2: ties at 1.5 and 2.5
                      -1, 0.5, 0, 1.0 / 127, // 63.5, and one step
                      0, 0, 0, 0, 0x1p-100, 0, 0, -0x1p-101}),
      Rounding::None);
  expectValues(q.integers,
               {127, -127, 2, 2, //
                -127, 64, 0, 1,  //
                0, 0, 0, 0,      //
                127, 0, 0, -64},
               0);
  expectValues(q.scales, {2, 1 / 127.0, 0, 0x1p-100 / 127}, 0);
}

// A row without numbers that could be told from zero is zero.
TEST(RowEvaluatorsTest, QuantizeRowsOfTinyNumbersGivesZero) {
  QuantizedRows q =
      quantizeRows(Tensor({1, 2}, {0x1.fp-101, -0x1p-120}), Rounding::Model);
  expectValues(q.integers, {0, 0}, 0);
  expectValues(q.scales, {0}, 0);
}

// Half of the largest number is 63.5 steps; the factor's rounding decides.
TEST(RowEvaluatorsTest, QuantizeRowsRoundsHalvesAsTheFactorDoes) {
  Tensor x({2, 2}, {152, 76, 158, 79});
  expectValues(quantizeRows(x, Rounding::None).integers, {127, 64, 127, 63}, 0);
  expectValues(quantizeRows(x, Rounding::Model).integers, {127, 63, 127, 64},
               0);
}

// Padding holds anything; it changes no other row.
TEST(RowEvaluatorsTest, QuantizeRowsKeepsNaNInItsRow) {
  QuantizedRows q =
      quantizeRows(Tensor({2, 2}, {NAN, 1, -127, 1}), Rounding::None);
  EXPECT_TRUE(std::isnan(q.integers.row(0)[0]));
  EXPECT_EQ(q.integers.row(1)[0], -127);
  EXPECT_EQ(q.integers.row(1)[1], 1);
  EXPECT_EQ(q.scales.row(1)[0], 1);
}

TEST(RowEvaluatorsTest, DequantizeScalesRowsAndColumns) {
  Tensor y = dequantize(Tensor({2, 3}, {1, 2, 3, 4, 5, 6}),
                        Tensor({2, 1}, {10, 0.5}), Tensor({3}, {1, 2, -4}));
  expectValues(y, {10, 40, -120, 2, 5, -12}, 0);
}

} // namespace
