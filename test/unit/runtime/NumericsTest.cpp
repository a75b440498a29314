// Conversions and the generator of random weights.
#include "prefill/checkpoint/FloatConversion.h"
#include "prefill/checkpoint/RandomWeights.h"
#include "prefill/module/ModuleChecksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>

using namespace prefill::rt;

namespace {

TEST(FloatConversion, Bf16RoundsToNearestEven) {
  EXPECT_EQ(floatToBf16(1.0f), 0x3f80);
  EXPECT_EQ(floatToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80); // tie
  EXPECT_EQ(floatToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82); // tie
  EXPECT_EQ(floatToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(floatToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(floatToBf16(-0.0f), 0x8000);
  EXPECT_TRUE(
      std::isnan(bf16ToFloat(floatToBf16(std::bit_cast<float>(0x7f800001u)))));
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    float value = bf16ToFloat(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) {
      ASSERT_EQ(floatToBf16(value), bits);
    }
  }
}

/// The nearest f16 by search over the neighbours, ties to even.
uint16_t nearestF16(float value) {
  uint16_t best = 0;
  double distance = std::numeric_limits<double>::infinity();
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    double d = std::fabs(double(f16ToFloat(static_cast<uint16_t>(bits))) -
                         std::fabs(double(value)));
    if (d < distance || (d == distance && bits % 2 == 0)) {
      distance = d;
      best = static_cast<uint16_t>(bits);
    }
  }
  // Halfway between the largest number and the next power of two and above is
  // infinity.
  if (std::fabs(value) >= 65520.0f)
    best = 0x7c00;
  return best | (std::signbit(value) ? 0x8000 : 0);
}

TEST(FloatConversion, F16) {
  EXPECT_EQ(f16ToFloat(0x3c00), 1.0f);
  EXPECT_EQ(f16ToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(f16ToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(f16ToFloat(0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(f16ToFloat(0x7e00)));
  EXPECT_TRUE(std::isnan(
      f16ToFloat(floatToF16(std::numeric_limits<float>::quiet_NaN()))));
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    float value = f16ToFloat(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) {
      ASSERT_EQ(floatToF16(value), bits);
    }
  }
  std::mt19937 random(1);
  for (float value : {65519.99f, 65520.0f, 1e9f, 0x1p-25f, 0x1.8p-25f, 0x1p-26f,
                      0x1.ffcp-15f, 0x1.ffep-15f, 0x1.fffp-15f, -1e-7f})
    EXPECT_EQ(floatToF16(value), nearestF16(value)) << value;
  for (int i = 0; i < 300; ++i) {
    float value = std::ldexp(float(random()) / 4294967296.0f + 0.5f,
                             int(random() % 40) - 26);
    EXPECT_EQ(floatToF16(value), nearestF16(value)) << value;
  }
}

TEST(RandomWeights, AreAFunctionOfSeedNameAndIndex) {
  RandomTensor a(1, "x", {4, 256}), again(1, "x", {99, 256}),
      otherSeed(2, "x", {4, 256}), otherName(1, "y", {4, 256});
  int equalSeed = 0, equalName = 0;
  for (int i = 0; i < 1024; ++i) {
    EXPECT_EQ(a[i], again[i]);
    equalSeed += a[i] == otherSeed[i];
    equalName += a[i] == otherName[i];
  }
  EXPECT_LT(equalSeed, 30);
  EXPECT_LT(equalName, 30);
}

// These numbers are a promise: goldens and the reference interpreter depend on
// them.
TEST(RandomWeights, NeverChange) {
  RandomTensor matrix(1, "model.layers.0.mlp.up_proj.weight", {8, 64});
  RandomTensor norm(1, "model.norm.weight", {64});
  RandomTensor bias(1, "model.layers.0.self_attn.q_proj.bias", {64});
  EXPECT_EQ(matrix[0], -0x1.3cp-3f);
  EXPECT_EQ(matrix[511], 0x1.fp-6f);
  EXPECT_EQ(norm[0], 0x1.e4p-1f);
  EXPECT_EQ(bias[63], 0x1.fp-7f);
}

TEST(RandomWeights, HaveTheStatedMoments) {
  auto moments = [](const RandomTensor &tensor, int count) {
    double sum = 0, squares = 0, largest = 0;
    for (int i = 0; i < count; ++i) {
      sum += tensor[i];
      squares += double(tensor[i]) * tensor[i];
      largest = std::max(largest, std::fabs(double(tensor[i])));
      EXPECT_EQ(bf16ToFloat(floatToBf16(tensor[i])), tensor[i]);
    }
    return std::array<double, 3>{
        sum / count, std::sqrt(squares / count - sum / count * sum / count),
        largest};
  };
  constexpr int count = 40000;
  auto [mean, deviation, largest] =
      moments(RandomTensor(3, "a.weight", {count / 100, 100}), count);
  EXPECT_NEAR(mean, 0, 0.002);
  EXPECT_NEAR(deviation, 0.1, 0.002); // 1 / sqrt(100)
  EXPECT_LT(largest, 0.348);
  auto norm =
      moments(RandomTensor(3, "input_layernorm.weight", {count}), count);
  EXPECT_NEAR(norm[0], 1, 0.002);
  EXPECT_NEAR(norm[1], 0.1, 0.002);
  auto bias = moments(RandomTensor(3, "q_proj.bias", {count}), count);
  EXPECT_NEAR(bias[0], 0, 0.002);
  EXPECT_NEAR(bias[1], 0.1, 0.002);
}

TEST(ModuleChecksum, SeesEveryBitAndTheSizeButNotItself) {
  std::vector<uint8_t> bytes(100, 0x5a);
  constexpr size_t at = 16; // of the checksum
  auto checksum = [&](size_t size) {
    return prefill::module::moduleChecksum(bytes.data(), size, at);
  };
  const uint64_t original = checksum(100);
  std::set<uint64_t> seen = {original};
  for (size_t byte = 0; byte < bytes.size(); ++byte)
    for (int bit = 0; bit < 8; ++bit) {
      bytes[byte] ^= 1 << bit;
      if (byte >= at && byte < at + 8)
        EXPECT_EQ(checksum(100), original);
      else
        EXPECT_TRUE(seen.insert(checksum(100)).second);
      bytes[byte] ^= 1 << bit;
    }
  bytes.assign(100, 0);
  for (size_t size = 0; size <= bytes.size(); ++size)
    EXPECT_TRUE(seen.insert(checksum(size)).second);
}

} // namespace
