//===- ResidualProblem.cpp - a gemm plus residual, with row sums ----------===//
#include "ResidualProblem.h"
#include "gtest/gtest.h"

namespace prefill_test {

std::string ResidualProblem::text() const {
  int64_t partials = (n + blockN - 1) / blockN;
  std::string type = dtype(element), x = rowsType(k, type),
              w = matrixType(n, k, type), out = rowsType(n, type),
              acc = rowsType(n, "f32"), sums = rowsType(partials, "f32");
  return "func.func private @down(%x: " + x + ", %w: " + w +
         ", %residual: " + out + ", %batch: !prefill.batch) -> (" + out + ", " +
         sums + ") attributes {prefill.kernel} {\n%0, %1 = prefill.gemm %x, " +
         "%w {" + config(blockM, blockN) + "} : " + x + ", " + w + " -> " +
         out + ", " + sums + " epilogue {\n^bb0(%acc: " + acc +
         "):\n%a = prefill.add %acc, %residual : " + acc + ", " + out + " -> " +
         out + "\n%s = prefill.row_sumsq %a : " + out + " -> " + sums +
         "\nprefill.yield %a, %s : " + out + ", " + sums +
         "\n}\nreturn %0, %1 : " + out + ", " + sums + "\n}\n";
}

void ResidualProblem::check(CudaKernel &kernel, uint64_t seed) const {
  int64_t partials = (n + blockN - 1) / blockN;
  DeviceMatrix input = DeviceMatrix(rows, k, element).randomize(1);
  DeviceMatrix weight = DeviceMatrix(n, k, element).randomize(2);
  DeviceMatrix residual = DeviceMatrix(rows, n, element).randomize(3, 4.0);
  DeviceMatrix result = DeviceMatrix(rows, n, element).fill(kNaN);
  DeviceMatrix squares = DeviceMatrix(rows, partials, Element::F32).fill(kNaN);
  Batch batch = Batch::ofRows(rows);
  LaunchOptions options;
  options.seed = seed;
  options.checkBlockRaces = true;
  LaunchCounters counters = kernel.run(Arguments()
                                           .matrix(input, "x")
                                           .matrix(weight, "w")
                                           .matrix(residual, "residual")
                                           .batch(batch)
                                           .matrix(result, "out", true)
                                           .matrix(squares, "sumsq", true),
                                       batch, options);
  if (n % 16 == 0) {
    // Lanes past the last row read that row again, for which the request takes
    // no more sectors.
    SiteCounters loads = siteCounters(counters, "epilogue.load");
    EXPECT_LE(loads.sectors * 32, loads.globalBytes) << n;
    SiteCounters stores = siteCounters(counters, "epilogue.store");
    EXPECT_EQ(stores.sectors * 32, stores.globalBytes) << n;
    EXPECT_EQ(stores.globalBytes, uint64_t(rows * n * 2)) << n;
  }
  result.download();
  squares.download();
  Product product = multiply(input, weight);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t p = 0; p < partials; ++p) {
      double sum = 0;
      for (int64_t c = p * blockN; c < std::min(n, (p + 1) * blockN); ++c) {
        double expected = product.sum.at(r, c) + residual.at(r, c);
        ASSERT_NEAR(result.at(r, c), expected,
                    1e-5 + 1e-6 * product.magnitude.at(r, c) +
                        std::abs(expected) * unitOf(element))
            << "row " << r << " column " << c << " of " << n;
        sum += result.at(r, c) * result.at(r, c);
      }
      ASSERT_NEAR(squares.at(r, p), sum, 1e-6 * sum)
          << "row " << r << " partial " << p;
    }
}

} // namespace prefill_test
