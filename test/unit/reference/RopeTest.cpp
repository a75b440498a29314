#include "ReferenceTesting.h"
#include "prefill/Analysis/RopeFrequencies.h"
#include <cmath>

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using ::testing::HasSubstr;

namespace {

struct RopeTest : ReferenceTest {
  RopeAttr plain(double theta, int64_t dim, bool interleaved = false) {
    return RopeAttr::get(&context, theta, dim, interleaved);
  }
  RopeAttr llama3(double theta, int64_t dim, double factor, double low,
                  double high, int64_t original) {
    return RopeAttr::get(&context, theta, dim, false, RopeScaling::Llama3,
                         factor, low, high, original);
  }
  static Batch at(std::vector<int32_t> positions) {
    Batch batch;
    batch.positions = std::move(positions);
    batch.tokens.resize(batch.positions.size());
    return batch;
  }
};

TEST_F(RopeTest, FrequenciesByHand) {
  // theta^(-2i/d) for theta 16, d 4: 1, 1/4.
  EXPECT_THAT(inverseFrequencies(plain(16, 4)),
              ::testing::ElementsAre(1.0f, 0.25f));
  RopeAttr linear =
      RopeAttr::get(&context, 16.0, 4, false, RopeScaling::Linear, 4.0);
  EXPECT_THAT(inverseFrequencies(linear),
              ::testing::ElementsAre(0.25f, 0.0625f));
}

TEST_F(RopeTest, Llama3HasThreeBands) {
  // theta 2^16, d 8: 1, 1/16, 1/256, 1/4096, so wavelengths 6.3, 100.5, 1608
  // and 25736. Trained on 1024: kept below 256 (high 4), divided above 1024
  // (low 1).
  auto frequencies = inverseFrequencies(llama3(65536, 8, 8, 1, 4, 1024));
  EXPECT_EQ(frequencies[0], 1.0f);
  EXPECT_EQ(frequencies[1], 0.0625f);
  EXPECT_EQ(frequencies[2], 1.0f / 2048);
  EXPECT_EQ(frequencies[3], 1.0f / 32768);
  // theta 2^12: 1, 1/8, 1/64 (wavelength 402: between), 1/512.
  frequencies = inverseFrequencies(llama3(4096, 8, 8, 1, 4, 1024));
  double smooth = (1024 / (2 * M_PI * 64) - 1) / 3;
  double blended = (1 - smooth) / 64 / 8 + smooth / 64;
  EXPECT_NEAR(frequencies[2], blended, blended * 3e-7);
}

// Two implementations that share no code give the same bits.
TEST_F(RopeTest, CompilerComputesTheSameBits) {
  for (double theta : {10000.0, 500000.0, 1000000.0, 123456.789})
    for (int64_t dim : {2, 16, 24, 32, 40, 64, 80, 96, 128, 256}) {
      for (RopeAttr attribute :
           {plain(theta, dim),
            RopeAttr::get(&context, theta, dim, false, RopeScaling::Linear,
                          4.0),
            RopeAttr::get(&context, theta, dim, false, RopeScaling::Linear,
                          3.3),
            llama3(theta, dim, 8, 1, 4, 8192), llama3(theta, dim, 32, 1, 4, 64),
            llama3(theta, dim, 7.7, 1.3, 3.9, 1000)}) {
        std::vector<float> expected = inverseFrequencies(attribute);
        SmallVector<float> actual = computeInvFreq(attribute);
        ASSERT_EQ(expected.size(), actual.size());
        for (size_t i = 0; i < actual.size(); ++i)
          EXPECT_EQ(expected[i], actual[i]) << theta << " " << dim << " " << i;
      }
    }
}

TEST_F(RopeTest, RotatesHalves) {
  // One head of 4, angles p and p / 4: (x0, x2) by p, (x1, x3) by p / 4.
  Tensor x({1, 4}, {1, 0, 0, 2});
  Tensor y = get(rope(x, at({3}), nullptr, plain(16, 4), 4));
  expectValues(y, {std::cos(3.0), -2 * std::sin(0.75), std::sin(3.0),
                   2 * std::cos(0.75)});
}

TEST_F(RopeTest, RotatesNeighboursWhenInterleaved) {
  Tensor x({1, 4}, {1, 0, 0, 2});
  Tensor y = get(rope(x, at({3}), nullptr, plain(16, 4, true), 4));
  expectValues(y, {std::cos(3.0), std::sin(3.0), -2 * std::sin(0.75),
                   2 * std::cos(0.75)});
}

TEST_F(RopeTest, PartialLeavesTheRestOfEachHead) {
  // Two heads of 4, the first two channels rotated.
  Tensor x({1, 8}, {1, 0, 5, 6, 0, 1, 7, 8});
  Tensor y = get(rope(x, at({2}), nullptr, plain(10000, 2), 4));
  double c = std::cos(2.0), s = std::sin(2.0);
  expectValues(y, {c, s, 5, 6, -s, c, 7, 8});
}

TEST_F(RopeTest, PositionZeroChangesNothing) {
  Tensor x({1, 4}, {1, 2, 3, 4});
  expectValues(get(rope(x, at({0}), nullptr, plain(10000, 4), 4)), {1, 2, 3, 4},
               0);
}

TEST_F(RopeTest, AnglesAreF32AtLargePositions) {
  // known-failures.md 31: at 100003 a bf16 angle would be off by hundreds.
  RopeAttr attribute = plain(10000, 128);
  std::vector<float> frequencies = inverseFrequencies(attribute);
  Tensor x({1, 128});
  x.values[5] = 1;
  Tensor y = get(rope(x, at({100003}), nullptr, attribute, 128));
  float angle = 100003.0f * frequencies[5];
  EXPECT_EQ(y.values[5], std::cos(static_cast<double>(angle)));
  EXPECT_EQ(y.values[69], std::sin(static_cast<double>(angle)));
}

TEST_F(RopeTest, TableAndAttributeAgree) {
  RopeAttr attribute = llama3(500000, 8, 8, 1, 4, 64);
  Tensor table = ropeTable(attribute, 40);
  Tensor x({2, 8}, {1, 2, 3, 4, 5, 6, 7, 8, -1, 2, -3, 4, -5, 6, -7, 8});
  Tensor direct = get(rope(x, at({1, 39}), nullptr, attribute, 8));
  expectValues(get(rope(x, at({1, 39}), &table, attribute, 8)), direct.values,
               0);
  EXPECT_THAT(messageOf(rope(x, at({1, 40}), &table, attribute, 8)),
              HasSubstr("position 40 of row 1 is outside the table of 40"));
}

TEST_F(RopeTest, NegativePositionIsAnError) {
  Tensor x({1, 4});
  EXPECT_THAT(messageOf(rope(x, at({-1}), nullptr, plain(10000, 4), 4)),
              HasSubstr("position -1 of row 0"));
}

} // namespace
