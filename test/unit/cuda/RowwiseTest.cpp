//===- RowwiseTest.cpp - rowwise CUDA kernels against plain loops ---------===//
#include "CudaKernel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

class RowwiseTest : public testing::TestWithParam<Element> {
protected:
  Element element() const { return GetParam(); }
  std::string rows(int64_t columns) const {
    return rowsType(columns, dtype(element()));
  }
  void expectNear(DeviceMatrix &got, const DeviceMatrix &want,
                  int64_t rowCount) {
    got.download();
    for (int64_t r = 0; r < rowCount; ++r)
      for (int64_t c = 0; c < got.columns; ++c) {
        double expected = want.at(r, c);
        ASSERT_NEAR(got.at(r, c), expected,
                    3e-6 + std::abs(expected) * (unitOf(element()) + 3e-6))
            << "row " << r << " column " << c;
      }
  }
};

std::string rowwiseText(const std::string &arguments,
                        const std::string &attributes, const std::string &body,
                        const std::string &yielded, const std::string &types) {
  return "func.func private @rowwise(" + arguments + ") -> (" + types +
         ") attributes {prefill.kernel} {\n%0" +
         (types.find(", tensor") != std::string::npos ? ":2" : "") +
         " = prefill.rowwise {" + attributes + "} : " + types + " body {\n" +
         body + "\nprefill.yield " + yielded + " : " + types + "\n}\nreturn " +
         (types.find(", tensor") != std::string::npos ? "%0#0, %0#1" : "%0") +
         " : " + types + "\n}\n";
}

// Tokens repeat; partial sums are those of the stored values.
TEST_P(RowwiseTest, EmbeddingWithRowSums) {
  struct Case {
    int64_t columns, width;
  };
  for (Case c : {Case{64, 64}, Case{320, 128}, Case{512, 256}, Case{40, 40},
                 Case{200, 96}}) {
    constexpr int64_t vocabulary = 11, rowCount = 9;
    int64_t partials = (c.columns + c.width - 1) / c.width;
    std::string table = matrixType(vocabulary, c.columns, dtype(element()));
    std::string out = rows(c.columns), sums = rowsType(partials, "f32");
    CudaKernel kernel(
        rowwiseText("%batch: !prefill.batch, %t: " + table, config(4, c.width),
                    "%e = prefill.embed %batch, %t : " + table + " -> " + out +
                        "\n%s = prefill.row_sumsq %e : " + out + " -> " + sums,
                    "%e, %s", out + ", " + sums));
    ASSERT_TRUE(kernel.ok());
    DeviceMatrix weights =
        DeviceMatrix(vocabulary, c.columns, element()).randomize(1);
    DeviceMatrix result =
        DeviceMatrix(rowCount, c.columns, element()).fill(kNaN);
    DeviceMatrix sum =
        DeviceMatrix(rowCount, partials, Element::F32).fill(kNaN);
    Batch batch = Batch::ofRows(rowCount);
    for (int64_t r = 0; r < rowCount; ++r)
      batch.tokens[size_t(r)] = int32_t(r * 7 % vocabulary);
    for (uint64_t seed : {0, 1, 2}) {
      LaunchOptions options;
      options.seed = seed;
      options.checkBlockRaces = true;
      LaunchCounters counters = kernel.run(Arguments()
                                               .batch(batch)
                                               .matrix(weights, "table")
                                               .matrix(result, "x", true)
                                               .matrix(sum, "sumsq", true),
                                           batch, options);
      // 16 bytes a lane, neighbours side by side: no part of a sector is idle.
      SiteCounters stores = siteCounters(counters, "epilogue.store");
      EXPECT_EQ(stores.globalBytes,
                uint64_t(rowCount * c.columns * result.elementBytes()));
      if (c.columns % 16 == 0)
        EXPECT_EQ(stores.sectors * 32, stores.globalBytes) << c.columns;
    }
    result.download();
    sum.download();
    for (int64_t r = 0; r < rowCount; ++r) {
      for (int64_t p = 0; p < partials; ++p) {
        double want = 0;
        for (int64_t i = p * c.width;
             i < std::min(c.columns, (p + 1) * c.width); ++i)
          want += std::pow(weights.at(r * 7 % vocabulary, i), 2);
        ASSERT_NEAR(sum.at(r, p), want, 1e-5 * want) << r << " " << p;
      }
      for (int64_t i = 0; i < c.columns; ++i)
        ASSERT_EQ(result.at(r, i), weights.at(r * 7 % vocabulary, i));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RowwiseTest,
                         testing::Values(Element::F32, Element::BF16,
                                         Element::F16),
                         [](const auto &info) { return dtype(info.param); });

} // namespace
