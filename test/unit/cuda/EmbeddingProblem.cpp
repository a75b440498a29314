//===- EmbeddingProblem.cpp - rows of a table, with row sums --------------===//
#include "EmbeddingProblem.h"
#include "gtest/gtest.h"

namespace prefill_test {

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

static constexpr int64_t kVocabulary = 11, kRows = 9;

std::string EmbeddingProblem::text() const {
  int64_t partials = (columns + width - 1) / width;
  std::string table = matrixType(kVocabulary, columns, dtype(element));
  std::string out = rowsType(columns, dtype(element));
  std::string sums = rowsType(partials, "f32");
  return rowwiseText("%batch: !prefill.batch, %t: " + table, config(4, width),
                     "%e = prefill.embed %batch, %t : " + table + " -> " + out +
                         "\n%s = prefill.row_sumsq %e : " + out + " -> " + sums,
                     "%e, %s", out + ", " + sums);
}

void EmbeddingProblem::check(CudaKernel &kernel, uint64_t seed) const {
  int64_t partials = (columns + width - 1) / width;
  DeviceMatrix weights =
      DeviceMatrix(kVocabulary, columns, element).randomize(1);
  DeviceMatrix result = DeviceMatrix(kRows, columns, element).fill(kNaN);
  DeviceMatrix sum = DeviceMatrix(kRows, partials, Element::F32).fill(kNaN);
  Batch batch = Batch::ofRows(kRows);
  for (int64_t r = 0; r < kRows; ++r)
    batch.tokens[size_t(r)] = int32_t(r * 7 % kVocabulary);
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
            uint64_t(kRows * columns * result.elementBytes()));
  if (columns % 16 == 0)
    EXPECT_EQ(stores.sectors * 32, stores.globalBytes) << columns;
  result.download();
  sum.download();
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t p = 0; p < partials; ++p) {
      double want = 0;
      for (int64_t i = p * width; i < std::min(columns, (p + 1) * width); ++i)
        want += std::pow(weights.at(r * 7 % kVocabulary, i), 2);
      ASSERT_NEAR(sum.at(r, p), want, 1e-5 * want) << r << " " << p;
    }
    for (int64_t i = 0; i < columns; ++i)
      ASSERT_EQ(result.at(r, i), weights.at(r * 7 % kVocabulary, i));
  }
}

} // namespace prefill_test
