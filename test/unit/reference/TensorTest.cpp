#include "ReferenceTesting.h"
#include <cmath>

using namespace mlir;
using namespace mlir::prefill::reference;

namespace {

struct Rounding : ReferenceTest {
  Type bf16 = BFloat16Type::get(&context), f16 = Float16Type::get(&context),
       f32 = Float32Type::get(&context), f64 = Float64Type::get(&context);
};

TEST_F(Rounding, Bf16RoundsToNearest) {
  EXPECT_EQ(roundTo(bf16, 1.0), 1.0);
  EXPECT_EQ(roundTo(bf16, 1.0 + 0x1p-7), 1.0 + 0x1p-7);
  EXPECT_EQ(roundTo(bf16, 1.0 + 0x1.8p-8), 1.0 + 0x1p-7);
  EXPECT_EQ(roundTo(bf16, 1.0 + 0x1p-9), 1.0);
}

TEST_F(Rounding, TiesGoToEven) {
  EXPECT_EQ(roundTo(bf16, 1.0 + 0x1p-8), 1.0);
  EXPECT_EQ(roundTo(bf16, 1.0 + 0x1.8p-7), 1.0 + 0x1p-6);
  EXPECT_EQ(roundTo(f16, 1.0 + 0x1p-11), 1.0);
}

TEST_F(Rounding, RoundsOnceNotThroughF32) {
  // A little above the tie; f32 would first round it onto the tie, then down.
  EXPECT_EQ(roundTo(bf16, 1.0 + 0x1p-8 + 0x1p-40), 1.0 + 0x1p-7);
}

TEST_F(Rounding, OverflowIsInfinity) {
  EXPECT_EQ(roundTo(f16, 65519.0), 65504.0);
  EXPECT_EQ(roundTo(f16, 65520.0), INFINITY);
  EXPECT_EQ(roundTo(f16, -1e6), -INFINITY);
  EXPECT_EQ(roundTo(bf16, 3.4e38), INFINITY);
}

TEST_F(Rounding, SubnormalsKeepTheirSpacing) {
  EXPECT_EQ(roundTo(f16, 0x1.8p-24), 0x1p-23);
  EXPECT_EQ(roundTo(f16, 0x1p-26), 0.0);
  EXPECT_EQ(roundTo(bf16, 0x1p-133), 0x1p-133);
}

TEST_F(Rounding, F32AndF64) {
  EXPECT_EQ(roundTo(f32, 0.1), static_cast<double>(0.1f));
  EXPECT_EQ(roundTo(f64, 0.1), 0.1);
  EXPECT_TRUE(std::isnan(roundTo(bf16, NAN)));
}

TEST(TensorTest, Norm) {
  EXPECT_DOUBLE_EQ(Tensor({1, 2}, {3.0, -4.0}).norm(), 5.0);
}

TEST_F(Rounding, IntegersStayAsTheyAre) {
  Type i8 = IntegerType::get(&context, 8);
  EXPECT_EQ(roundTo(i8, -127.0), -127.0);
  EXPECT_EQ(roundTo(i8, 3.0), 3.0);
}

} // namespace
