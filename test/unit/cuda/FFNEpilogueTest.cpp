//===- FFNEpilogueTest.cpp - residual with row sums, gated activation -----===//
#include "CudaKernel.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

class FFNEpilogueTest : public testing::TestWithParam<Element> {
protected:
  Element element() const { return GetParam(); }
};

// The sums are those of the stored values, a partial for each tile.
TEST_P(FFNEpilogueTest, ResidualAndRowSums) {
  struct Case {
    int64_t n, blockM, blockN;
  };
  for (Case c : {Case{192, 64, 96}, Case{80, 16, 96}, Case{256, 128, 128},
                 Case{72, 64, 32}, Case{512, 32, 256}, Case{70, 64, 64}}) {
    constexpr int64_t k = 48, rows = 13;
    int64_t partials = (c.n + c.blockN - 1) / c.blockN;
    std::string type = dtype(element()), x = rowsType(k, type),
                w = matrixType(c.n, k, type), out = rowsType(c.n, type),
                acc = rowsType(c.n, "f32"), sums = rowsType(partials, "f32");
    CudaKernel kernel(
        "func.func private @down(%x: " + x + ", %w: " + w + ", %residual: " +
        out + ", %batch: !prefill.batch) -> (" + out + ", " + sums +
        ") attributes {prefill.kernel} {\n%0, %1 = prefill.gemm %x, %w {" +
        config(c.blockM, c.blockN) + "} : " + x + ", " + w + " -> " + out +
        ", " + sums + " epilogue {\n^bb0(%acc: " + acc +
        "):\n%a = prefill.add %acc, %residual : " + acc + ", " + out + " -> " +
        out + "\n%s = prefill.row_sumsq %a : " + out + " -> " + sums +
        "\nprefill.yield %a, %s : " + out + ", " + sums +
        "\n}\nreturn %0, %1 : " + out + ", " + sums + "\n}\n");
    ASSERT_TRUE(kernel.ok());
    DeviceMatrix input = DeviceMatrix(rows, k, element()).randomize(1);
    DeviceMatrix weight = DeviceMatrix(c.n, k, element()).randomize(2);
    DeviceMatrix residual =
        DeviceMatrix(rows, c.n, element()).randomize(3, 4.0);
    DeviceMatrix result = DeviceMatrix(rows, c.n, element()).fill(kNaN);
    DeviceMatrix squares =
        DeviceMatrix(rows, partials, Element::F32).fill(kNaN);
    Batch batch = Batch::ofRows(rows);
    LaunchOptions options;
    options.seed = 3;
    options.checkBlockRaces = true;
    LaunchCounters counters = kernel.run(Arguments()
                                             .matrix(input, "x")
                                             .matrix(weight, "w")
                                             .matrix(residual, "residual")
                                             .batch(batch)
                                             .matrix(result, "out", true)
                                             .matrix(squares, "sumsq", true),
                                         batch, options);
    if (c.n % 16 == 0) {
      // Lanes past the last row read that row again, for which the request
      // takes no more sectors.
      SiteCounters loads = siteCounters(counters, "epilogue.load");
      EXPECT_LE(loads.sectors * 32, loads.globalBytes) << c.n;
      SiteCounters stores = siteCounters(counters, "epilogue.store");
      EXPECT_EQ(stores.sectors * 32, stores.globalBytes) << c.n;
      EXPECT_EQ(stores.globalBytes, uint64_t(rows * c.n * 2)) << c.n;
    }
    result.download();
    squares.download();
    DeviceMatrix want = multiply(input, weight).sum;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t p = 0; p < partials; ++p) {
        double sum = 0;
        for (int64_t n = p * c.blockN; n < std::min(c.n, (p + 1) * c.blockN);
             ++n) {
          double expected = want.at(r, n) + residual.at(r, n);
          ASSERT_NEAR(result.at(r, n), expected,
                      1e-5 + std::abs(expected) * unitOf(element()))
              << "row " << r << " column " << n << " of " << c.n;
          sum += result.at(r, n) * result.at(r, n);
        }
        ASSERT_NEAR(squares.at(r, p), sum, 1e-6 * sum)
            << "row " << r << " partial " << p;
      }
  }
}

TEST_P(FFNEpilogueTest, GateUp) {
  struct Case {
    std::string kind;
    int64_t columns, blockM, blockN;
  };
  for (const Case &c :
       {Case{"silu", 96, 64, 64}, Case{"gelu_tanh", 160, 64, 128},
        Case{"silu", 70, 16, 64}, Case{"gelu_tanh", 192, 128, 192}}) {
    constexpr int64_t k = 32, rows = 11, granularity = 32;
    int64_t columns = c.columns;
    int64_t runs = (columns + granularity - 1) / granularity;
    int64_t n = 2 * runs * granularity;
    std::string type = dtype(element()), x = rowsType(k, type),
                w = matrixType(n, k, type), out = rowsType(columns, type),
                acc = rowsType(n, "f32"), part = rowsType(columns, "f32"),
                vec = vectorType(columns, type);
    CudaKernel kernel(
        "func.func private @gate_up(%x: " + x + ", %w: " + w +
        ", %bias: " + vec + ", %batch: !prefill.batch) -> " + out +
        " attributes {prefill.kernel} {\n%0 = prefill.gemm %x, %w {" +
        config(c.blockM, c.blockN) + "} : " + x + ", " + w + " -> " + out +
        " epilogue {\n^bb0(%acc: " + acc +
        "):\n%g, %u = prefill.deinterleave %acc {granularity = 32} : " + acc +
        " -> " + part + ", " + part + "\n%gb = prefill.bias_add %g, %bias : " +
        part + ", " + vec + " -> " + part + "\n%a = prefill.gated_act " +
        c.kind + " %gb, %u : " + part + ", " + part + " -> " + part +
        "\nprefill.yield %a : " + part + "\n}\nreturn %0 : " + out + "\n}\n");
    ASSERT_TRUE(kernel.ok());
    DeviceMatrix input = DeviceMatrix(rows, k, element()).randomize(1);
    DeviceMatrix gate = DeviceMatrix(columns, k, element()).randomize(2);
    DeviceMatrix up = DeviceMatrix(columns, k, element()).randomize(3);
    DeviceMatrix bias = DeviceMatrix(1, columns, element()).randomize(4);
    DeviceMatrix interleaved(n, k, element());
    for (int64_t i = 0; i < columns; ++i)
      for (int64_t j = 0; j < k; ++j) {
        int64_t at = i / granularity * 2 * granularity + i % granularity;
        interleaved.at(at, j) = gate.at(i, j);
        interleaved.at(at + granularity, j) = up.at(i, j);
      }
    DeviceMatrix result = DeviceMatrix(rows, columns, element()).fill(kNaN);
    Batch batch = Batch::ofRows(rows);
    kernel.run(Arguments()
                   .matrix(input, "x")
                   .matrix(interleaved, "w")
                   .matrix(bias, "bias")
                   .batch(batch)
                   .matrix(result, "out", true),
               batch);
    result.download();
    DeviceMatrix gates = multiply(input, gate).sum;
    DeviceMatrix ups = multiply(input, up).sum;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < columns; ++i) {
        double g = gates.at(r, i) + bias.at(0, i);
        double activated =
            c.kind == "silu" ? g / (1 + std::exp(-g))
                             : 0.5 * g *
                                   (1 + std::tanh(std::sqrt(2 / M_PI) *
                                                  (g + 0.044715 * g * g * g)));
        double expected = activated * ups.at(r, i);
        ASSERT_NEAR(result.at(r, i), expected,
                    2e-5 + std::abs(expected) * unitOf(element()))
            << c.kind << " row " << r << " column " << i;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, FFNEpilogueTest,
                         testing::Values(Element::BF16, Element::F16),
                         [](const auto &info) { return dtype(info.param); });

} // namespace
