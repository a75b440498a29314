// Which variant of a module runs.
#include "cpu/IsaVariant.h"
#include "cpu/MultiplyRates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
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

TEST(IsaVariant, NamesAreReadBack) {
  for (IsaVariant variant : isaVariants)
    EXPECT_EQ(parseIsaVariant(stringify(variant)), variant);
  EXPECT_EQ(parseIsaVariant("avx_vnni"), IsaVariant::avx_vnni);
  EXPECT_EQ(parseIsaVariant("avx512_vnni"), IsaVariant::avx512_vnni);
  EXPECT_EQ(parseIsaVariant("vnni"), std::nullopt);
}

TEST(IsaVariant, OneIncludesAnother) {
  using enum IsaVariant;
  for (auto [larger, smaller] : {std::pair{avx_vnni, avx2},
                                 {avx512, avx2},
                                 {avx512_vnni, avx512},
                                 {avx512_bf16, avx512_vnni},
                                 {amx_bf16, avx512_bf16}})
    EXPECT_TRUE(hostSupports(smaller) || !hostSupports(larger))
        << stringify(larger) << " without " << stringify(smaller);
}

TEST(IsaVariant, WhatTheSystemListsIsFound) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && line.rfind("flags", 0) != 0)
    ;
  std::istringstream words(line);
  std::set<std::string> flags;
  for (std::string word; words >> word;)
    flags.insert(word);
  if (!flags.count("avx2") || !flags.count("fma"))
    GTEST_SKIP() << "this CPU has no avx2";
  EXPECT_TRUE(hostSupports(IsaVariant::avx2));
  // Old kernels do not list what they need not know of.
  if (flags.count("avx_vnni")) {
    EXPECT_TRUE(hostSupports(IsaVariant::avx_vnni));
  }
  bool wide = flags.count("avx512f") && flags.count("avx512bw") &&
              flags.count("avx512vl") && flags.count("avx512dq");
  EXPECT_EQ(hostSupports(IsaVariant::avx512_vnni),
            wide && flags.count("avx512_vnni"));
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
  if (hostSupports(IsaVariant::avx_vnni)) {
    EXPECT_EQ(chooseVariant(only({IsaVariant::avx2, IsaVariant::avx_vnni})),
              IsaVariant::avx_vnni);
  }
  if (hostSupports(IsaVariant::avx512_vnni)) {
    EXPECT_EQ(chooseVariant(only({IsaVariant::avx512, IsaVariant::avx512_vnni,
                                  IsaVariant::avx_vnni})),
              IsaVariant::avx512_vnni);
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
  // With integer weights the one in its place multiplies them by VNNI.
  auto integers = chooseVariant(
      only({IsaVariant::avx2, IsaVariant::avx_vnni, IsaVariant::avx512,
            IsaVariant::avx512_vnni, IsaVariant::avx512_bf16}));
  EXPECT_EQ(integers, hostPrefersFma() ? IsaVariant::avx512_vnni
                                       : IsaVariant::avx512_bf16);
  // Tiles are ahead of all.
  EXPECT_EQ(chooseVariant(offersAll), hostSupports(IsaVariant::amx_bf16)
                                          ? IsaVariant::amx_bf16
                                          : *integers);
}

} // namespace
