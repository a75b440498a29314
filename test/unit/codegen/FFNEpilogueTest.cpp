//===- FFNEpilogueTest.cpp - residual with row sums, gated activation -----===//
#include "IsaTest.h"
#include "TestMatrix.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

using Parameter = std::tuple<std::string, bool>;

class FFNEpilogueTest : public IsaTest<bool> {
protected:
  bool bf16() const { return std::get<1>(GetParam()); }
};

// The sums are those of the stored values, a partial for each tile.
TEST_P(FFNEpilogueTest, ResidualAndRowSums) {
  struct Case {
    int64_t n, blockN;
  };
  for (Case c : {Case{192, 96}, Case{80, 96}, Case{256, 128}, Case{72, 32}}) {
    constexpr int64_t k = 48, rows = 13;
    int64_t partials = (c.n + c.blockN - 1) / c.blockN;
    std::string element = dtype(bf16()), x = rowsType(k, element),
                w = packedType(c.n, k, c.n, bf16()),
                out = rowsType(c.n, element), acc = rowsType(c.n, "f32"),
                sums = rowsType(partials, "f32");
    CompiledKernel kernel(
        "func.func private @down(%x: " + x + ", %w: " + w + ", %residual: " +
            out + ", %batch: !prefill.batch) -> (" + out + ", " + sums +
            ") attributes {prefill.kernel} {\n%0, %1 = prefill.gemm %x, %w {" +
            config(64, c.blockN) + "} : " + x + ", " + w + " -> " + out + ", " +
            sums + " epilogue {\n^bb0(%acc: " + acc +
            "):\n%a = prefill.add %acc, %residual : " + acc + ", " + out +
            " -> " + out + "\n%s = prefill.row_sumsq %a : " + out + " -> " +
            sums + "\nprefill.yield %a, %s : " + out + ", " + sums +
            "\n}\nreturn %0, %1 : " + out + ", " + sums + "\n}\n",
        isa());
    ASSERT_TRUE(kernel.ok());
    Matrix input = Matrix(rows, k, bf16()).randomize(1);
    Matrix weight = Matrix(c.n, k, bf16()).randomize(2);
    Matrix residual = Matrix(rows, c.n, bf16()).randomize(3, 4.0);
    Matrix packed = pack(weight, c.n), result(rows, c.n, bf16());
    Matrix squares = Matrix(rows, partials, false).fill(kNaN);
    Batch batch = Batch::ofRows(rows);
    kernel.run(Arguments()
                   .pointer(input.upload())
                   .pointer(packed.upload())
                   .pointer(residual.upload())
                   .batch(batch)
                   .pointer(result.upload())
                   .pointer(squares.upload()),
               batch);
    result.download();
    squares.download();
    Matrix want = multiply(input, weight).sum;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t p = 0; p < partials; ++p) {
        double sum = 0;
        for (int64_t n = p * c.blockN; n < std::min(c.n, (p + 1) * c.blockN);
             ++n) {
          double expected = want.at(r, n) + residual.at(r, n);
          ASSERT_NEAR(result.at(r, n), expected,
                      1e-5 + (bf16() ? std::abs(expected) / 256 : 0.0));
          sum += result.at(r, n) * result.at(r, n);
        }
        ASSERT_NEAR(squares.at(r, p), sum, 1e-6 * sum)
            << "row " << r << " partial " << p;
      }
  }
}

TEST_P(FFNEpilogueTest, GateUp) {
  for (std::string kind : {"silu", "gelu_tanh"})
    for (int64_t columns : {96, 70}) {
      constexpr int64_t k = 32, rows = 11, granularity = 32;
      int64_t runs = (columns + granularity - 1) / granularity;
      int64_t n = 2 * runs * granularity;
      std::string element = dtype(bf16()), x = rowsType(k, element),
                  w = packedType(n, k, n, bf16()),
                  out = rowsType(columns, element), acc = rowsType(n, "f32"),
                  part = rowsType(columns, "f32"),
                  vec =
                      "tensor<" + std::to_string(columns) + "x" + element + ">";
      CompiledKernel kernel(
          "func.func private @gate_up(%x: " + x + ", %w: " + w +
              ", %bias: " + vec + ", %batch: !prefill.batch) -> " + out +
              " attributes {prefill.kernel} {\n%0 = prefill.gemm %x, %w {" +
              config(64, 64) + "} : " + x + ", " + w + " -> " + out +
              " epilogue {\n^bb0(%acc: " + acc +
              "):\n%g, %u = prefill.deinterleave %acc {granularity = 32} : " +
              acc + " -> " + part + ", " + part +
              "\n%gb = prefill.bias_add %g, %bias : " + part + ", " + vec +
              " -> " + part + "\n%a = prefill.gated_act " + kind +
              " %gb, %u : " + part + ", " + part + " -> " + part +
              "\nprefill.yield %a : " + part + "\n}\nreturn %0 : " + out +
              "\n}\n",
          isa());
      ASSERT_TRUE(kernel.ok());
      Matrix input = Matrix(rows, k, bf16()).randomize(1);
      Matrix gate = Matrix(columns, k, bf16()).randomize(2);
      Matrix up = Matrix(columns, k, bf16()).randomize(3);
      Matrix bias = Matrix(1, columns, bf16()).randomize(4);
      Matrix interleaved(n, k, bf16());
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t i = 0; i < k; ++i) {
          int64_t at = c / granularity * 2 * granularity + c % granularity;
          interleaved.at(at, i) = gate.at(c, i);
          interleaved.at(at + granularity, i) = up.at(c, i);
        }
      Matrix packed = pack(interleaved, n), result(rows, columns, bf16());
      Batch batch = Batch::ofRows(rows);
      kernel.run(Arguments()
                     .pointer(input.upload())
                     .pointer(packed.upload())
                     .pointer(bias.upload())
                     .batch(batch)
                     .pointer(result.fill(kNaN).upload()),
                 batch);
      result.download();
      Matrix gates = multiply(input, gate).sum, ups = multiply(input, up).sum;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
          double g = gates.at(r, c) + bias.at(0, c);
          double activated =
              kind == "silu" ? g / (1 + std::exp(-g))
                             : 0.5 * g *
                                   (1 + std::tanh(std::sqrt(2 / M_PI) *
                                                  (g + 0.044715 * g * g * g)));
          double expected = activated * ups.at(r, c);
          ASSERT_NEAR(result.at(r, c), expected,
                      2e-5 + (bf16() ? std::abs(expected) / 256 : 0.0))
              << kind << " row " << r << " column " << c;
        }
    }
}

std::vector<Parameter> variants() {
  std::vector<Parameter> all;
  // Variants for 8-bit integers alone have the code of another one here.
  for (const mlir::prefill::CpuIsa &isa : mlir::prefill::cpuIsas())
    for (bool bf16 : {false, true})
      if (!isa.onlyInt8)
        all.push_back({isa.name.str(), bf16});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Isas, FFNEpilogueTest, testing::ValuesIn(variants()),
                         [](const auto &info) {
                           return std::get<0>(info.param) + "_" +
                                  dtype(std::get<1>(info.param));
                         });

} // namespace
