// Which variant of a module runs.
#include "cpu/IsaVariant.h"
#include "cpu/MultiplyRates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

using namespace prefill::rt;

namespace {

auto only(std::initializer_list<IsaVariant> offered) {
  return [offered = std::vector<IsaVariant>(offered)](IsaVariant variant) {
    return std::find(offered.begin(), offered.end(), variant) != offered.end();
  };
}

bool offersAll(IsaVariant) { return true; }

TEST(MultiplyRates, FmaIsPreferredWhereItIsClearlyFaster) {
  EXPECT_TRUE(prefersFma({178, 84}));   // Emerald Rapids, GFLOP/s
  EXPECT_FALSE(prefersFma({110, 220})); // Zen 4's proportion
  EXPECT_FALSE(prefersFma({110, 100})); // too close to be the same every time
}

TEST(MultiplyRates, AreMeasured) {
  if (!hostSupports(IsaVariant::avx512_bf16))
    GTEST_SKIP() << "this CPU has no avx512_bf16";
  MultiplyRates rates = measureMultiplyRates();
  // No CPU does a million or 10^13 of them a second on one thread.
  EXPECT_GT(rates.fma, 1e6);
  EXPECT_LT(rates.fma, 1e13);
  EXPECT_GT(rates.dot, 1e6);
  EXPECT_LT(rates.dot, 1e13);
}

TEST(ChooseVariant, TakesTheBestThatIsOffered) {
  EXPECT_EQ(chooseVariant(only({})), std::nullopt);
  for (IsaVariant variant : isaVariants)
    EXPECT_EQ(chooseVariant(only({variant})),
              hostSupports(variant) ? std::optional(variant) : std::nullopt)
        << stringify(variant);
  if (hostSupports(IsaVariant::avx512)) {
    EXPECT_EQ(chooseVariant(only({IsaVariant::avx512, IsaVariant::avx2})),
              IsaVariant::avx512);
  }
}

TEST(ChooseVariant, FollowsTheRates) {
  if (!hostSupports(IsaVariant::avx512_bf16))
    GTEST_SKIP() << "this CPU has no avx512_bf16";
  auto chosen = chooseVariant(
      only({IsaVariant::avx2, IsaVariant::avx512, IsaVariant::avx512_bf16}));
  EXPECT_EQ(chosen,
            hostPrefersFma() ? IsaVariant::avx512 : IsaVariant::avx512_bf16);
  // Without code for it the other one runs.
  EXPECT_EQ(chooseVariant(only({IsaVariant::avx2, IsaVariant::avx512_bf16})),
            IsaVariant::avx512_bf16);
  // Tiles are ahead of both.
  EXPECT_EQ(chooseVariant(offersAll), hostSupports(IsaVariant::amx_bf16)
                                          ? IsaVariant::amx_bf16
                                          : *chosen);
}

} // namespace
