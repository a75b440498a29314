#include "ReferenceTesting.h"
#include <cmath>

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

struct WeightProgramTest : ReferenceTest {
  /// Value of @w in a module of the given weights.
  llvm::Expected<Tensor>
  evaluate(StringRef text, mlir::prefill::reference::Rounding rounding =
                               mlir::prefill::reference::Rounding::None) {
    module = parse(text);
    if (!module)
      return llvm::createStringError("no module");
    WeightProgram program(*module, weights, rounding);
    auto value = program.get("w");
    if (!value)
      return value.takeError();
    return **value;
  }

  OwningOpRef<ModuleOp> module;
  GivenWeights weights;
};

TEST_F(WeightProgramTest, Concat) {
  weights.set("a", Tensor({1, 2}, {1, 2}));
  weights.set("b", Tensor({2, 2}, {3, 4, 5, 6}));
  Tensor w = get(evaluate(R"(
    prefill.weight @a : tensor<1x2xf32> = #prefill.checkpoint<"a">
    prefill.weight @b : tensor<2x2xf32> = #prefill.checkpoint<"b">
    prefill.weight @w : tensor<3x2xf32> = #prefill.concat<[@a, @b]>)"));
  EXPECT_THAT(w.shape, ElementsAre(3, 2));
  expectValues(w, {1, 2, 3, 4, 5, 6}, 0);
}

TEST_F(WeightProgramTest, InterleavePadsEachInput) {
  weights.set("g", Tensor({3, 1}, {1, 2, 3}));
  weights.set("u", Tensor({3, 1}, {10, 20, 30}));
  expectValues(get(evaluate(R"(
    prefill.weight @g : tensor<3x1xf32> = #prefill.checkpoint<"g">
    prefill.weight @u : tensor<3x1xf32> = #prefill.checkpoint<"u">
    prefill.weight @w : tensor<8x1xf32> = #prefill.interleave<@g, @u, granularity = 2>)")),
               {1, 2, 10, 20, 3, 0, 30, 0}, 0);
}

TEST_F(WeightProgramTest, InterleaveOfBiases) {
  weights.set("g", Tensor({2}, {1, 2}));
  weights.set("u", Tensor({2}, {10, 20}));
  expectValues(get(evaluate(R"(
    prefill.weight @g : tensor<2xf32> = #prefill.checkpoint<"g">
    prefill.weight @u : tensor<2xf32> = #prefill.checkpoint<"u">
    prefill.weight @w : tensor<4xf32> = #prefill.interleave<@g, @u, granularity = 1>)")),
               {1, 10, 2, 20}, 0);
}

TEST_F(WeightProgramTest, ScaleColumnsRoundsOnce) {
  // 1.0078125 * 1.0078125 = 1.01568603515625; bf16 has 1.015625 and 1.0234375.
  weights.set("x", Tensor({2, 2}, {1, 1, 1.0078125, -2}));
  weights.set("g", Tensor({2}, {1.0078125, 3}));
  StringRef text = R"(
    prefill.weight @x : tensor<2x2xbf16> = #prefill.checkpoint<"x">
    prefill.weight @g : tensor<2xbf16> = #prefill.checkpoint<"g">
    prefill.weight @w : tensor<2x2xbf16> = #prefill.scale_columns<@x, gain = @g>)";
  expectValues(get(evaluate(text)), {1.0078125, 3, 1.01568603515625, -6}, 0);
  expectValues(get(evaluate(text, mlir::prefill::reference::Rounding::Model)),
               {1.0078125, 3, 1.015625, -6}, 0);
}

TEST_F(WeightProgramTest, RopeTable) {
  Tensor w = get(evaluate(R"(
    prefill.weight @w : tensor<2x4xf32> = #prefill.rope_table<<theta = 16.0, rotary_dim = 4>, max_position = 2>)"));
  expectValues(w,
               {1, 1, 0, 0, std::cos(1.0), std::cos(0.25), std::sin(1.0),
                std::sin(0.25)},
               0);
}

TEST_F(WeightProgramTest, QuantizeByOutputChannel) {
  weights.set("a", Tensor({3, 2}, {127, 3, -0.5, 0.25, 0, 0}));
  StringRef integers = R"(
    prefill.weight @a : tensor<3x2xbf16> = #prefill.checkpoint<"a">
    prefill.weight @w : tensor<3x2xi8> = #prefill.quantize<@a>)";
  StringRef scales = R"(
    prefill.weight @a : tensor<3x2xbf16> = #prefill.checkpoint<"a">
    prefill.weight @w : tensor<3xf32> = #prefill.quantize_scale<@a>)";
  using mlir::prefill::reference::Rounding;
  for (Rounding rounding : {Rounding::None, Rounding::Model}) {
    expectValues(get(evaluate(integers, rounding)), {127, 3, -127, 64, 0, 0},
                 0);
    Tensor w = get(evaluate(scales, rounding));
    EXPECT_THAT(w.shape, ElementsAre(3));
    double half = 0.5 / 127;
    expectValues(w, {1, rounding == Rounding::None ? half : float(half), 0}, 0);
  }
}

TEST_F(WeightProgramTest, PackedIsRefusedByName) {
  weights.set("a", Tensor({16, 2}));
  EXPECT_THAT(messageOf(evaluate(R"(
    prefill.weight @a : tensor<16x2xf32> = #prefill.checkpoint<"a">
    prefill.weight @w : tensor<1x2x16x1xf32> = #prefill.pack<@a, panel_n = 16, k_pack = 1, group_n = 16>)")),
              HasSubstr("weight @w is packed"));
}

TEST_F(WeightProgramTest, MissingTensorIsNamed) {
  EXPECT_THAT(messageOf(evaluate(R"(
    prefill.weight @w : tensor<2xf32> = #prefill.checkpoint<"model.norm.weight">)")),
              HasSubstr("'model.norm.weight'"));
}

TEST_F(WeightProgramTest, RandomWeightsDependOnNameAndSeedOnly) {
  RandomWeights one(1), two(2);
  Tensor a = get(one.get("a.weight", {8, 16}));
  EXPECT_EQ(a.values, get(one.get("a.weight", {8, 16})).values);
  EXPECT_NE(a.values, get(one.get("b.weight", {8, 16})).values);
  EXPECT_NE(a.values, get(two.get("a.weight", {8, 16})).values);
}

} // namespace
