//===- FFNEpilogueTest.cpp - residual with row sums, gated activation -----===//
#include "ResidualProblem.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

class FFNEpilogueTest : public testing::TestWithParam<Element> {
protected:
  Element element() const { return GetParam(); }
};

TEST_P(FFNEpilogueTest, ResidualAndRowSums) {
  for (ResidualProblem problem : {ResidualProblem{element(), 192, 64, 96},
                                  ResidualProblem{element(), 80, 16, 96},
                                  ResidualProblem{element(), 256, 128, 128},
                                  ResidualProblem{element(), 72, 64, 32},
                                  ResidualProblem{element(), 512, 32, 256},
                                  ResidualProblem{element(), 70, 64, 64}}) {
    CudaKernel kernel(problem.text());
    ASSERT_TRUE(kernel.ok());
    problem.check(kernel, 3);
    if (HasFatalFailure())
      return;
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
