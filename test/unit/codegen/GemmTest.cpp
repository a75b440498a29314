//===- GemmTest.cpp - GEMM kernels against plain loops --------------------===//
#include "IsaTest.h"
#include "TestMatrix.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

struct GemmCase {
  int64_t n, k, blockN;
  int64_t blockM = 64;
  int64_t groupN = 0; // 0: n
  int64_t blockK = 0; // 0: one pass over K
  int64_t groupM = 0; // 0: all rows
  int64_t group() const { return groupN ? groupN : n; }
};

std::string gemmText(const GemmCase &c, Element element,
                     const std::string &output) {
  std::string x = rowsType(c.k, dtype(element)),
              w = packedType(c.n, c.k, c.group(), element),
              acc = rowsType(c.n, "f32"), out = rowsType(c.n, output);
  return "func.func private @gemm(%x: " + x + ", %w: " + w +
         ", %batch: !prefill.batch) -> " + out +
         " attributes {prefill.kernel} {\n  %0 = prefill.gemm %x, %w {" +
         config(c.blockM, c.blockN) +
         ", prefill.group_n = " + std::to_string(c.group()) +
         (c.blockK ? ", prefill.block_k = " + std::to_string(c.blockK) : "") +
         (c.groupM ? ", prefill.group_m = " + std::to_string(c.groupM) : "") +
         "} : " + x + ", " + w + " -> " + out +
         " epilogue {\n  ^bb0(%acc: " + acc +
         "):\n    prefill.yield %acc : " + acc + "\n  }\n  return %0 : " + out +
         "\n}\n";
}

class GemmTest : public IsaTest<Element> {
protected:
  Element element() const { return std::get<1>(GetParam()); }

  /// Runs `kernel` on rows of x.
  Matrix run(const CompiledKernel &kernel, const GemmCase &c, Matrix x,
             Matrix w, Element output = Element::F32) {
    x = asHeldBy(isa(), std::move(x));
    Matrix packed = pack(w, c.group());
    Matrix out(x.rows, c.n, output);
    out.fill(kNaN);
    Batch batch = Batch::ofRows(x.rows);
    kernel.run(Arguments()
                   .pointer(x.upload())
                   .pointer(packed.upload())
                   .batch(batch)
                   .pointer(out.upload()),
               batch);
    return out.download();
  }

  void expectProduct(const Matrix &out, const Matrix &x, const Matrix &w) {
    Product product = multiply(x, w);
    for (int64_t r = 0; r < out.rows; ++r)
      for (int64_t n = 0; n < out.columns; ++n) {
        double want = product.sum.at(r, n);
        // Sums of integers are exact until they are f32.
        double tolerance =
            (x.element == Element::I8
                 ? 0x1p-24 * std::abs(want)
                 : 1e-6 * product.magnitude.at(r, n) + 1e-7) +
            (out.element == Element::BF16  ? std::abs(want) / 256
             : out.element == Element::F16 ? std::abs(want) / 2048
                                           : 0.0);
        ASSERT_NEAR(out.at(r, n), want, tolerance)
            << "row " << r << " of " << out.rows << ", column " << n << " of "
            << out.columns << ", K = " << x.columns;
      }
  }
};

TEST_P(GemmTest, EveryRowCountAndRaggedColumns) {
  for (GemmCase c :
       {GemmCase{32, 64, 32}, GemmCase{131, 130, 32}, GemmCase{80, 6, 96},
        GemmCase{256, 96, 128},
        // Tiles of two padded groups of 40 columns.
        GemmCase{160, 64, 80, 64, 40},
        // The last tile has fewer panels.
        GemmCase{160, 64, 64},
        // Passes over K, the last one shorter or not, or one longer than K.
        GemmCase{96, 128, 96, 64, 0, 64}, GemmCase{131, 130, 32, 64, 0, 32},
        GemmCase{64, 64, 64, 64, 0, 128},
        // A pair of k whose second half is padding.
        GemmCase{64, 33, 64}, GemmCase{64, 129, 64, 64, 0, 64},
        // Chunks of whole microkernels are taller than block_m.
        GemmCase{32, 64, 32, 60},
        // Two chunks of rows take all tiles before the third does, or each.
        GemmCase{96, 64, 32, 64, 0, 0, 64},
        GemmCase{96, 64, 32, 8, 0, 0, 16}}) {
    CompiledKernel kernel(gemmText(c, element(), "f32"), isa());
    ASSERT_TRUE(kernel.ok());
    Matrix w = Matrix(c.n, c.k, element()).randomize(1);
    for (int64_t rows : {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,  11,
                         12, 13, 14, 15, 16, 17, 63, 64, 65, 128, 130}) {
      Matrix x = Matrix(rows, c.k, element()).randomize(unsigned(rows));
      expectProduct(run(kernel, c, x, w), x, w);
      if (HasFatalFailure())
        return;
    }
  }
}

TEST_P(GemmTest, OneWorkgroupOverAllTiles) {
  GemmCase c{160, 64, 32, 8};
  CompiledKernel kernel(gemmText(c, element(), "f32"), isa(),
                        /*plainTiles=*/true);
  ASSERT_TRUE(kernel.ok());
  Matrix w = Matrix(c.n, c.k, element()).randomize(1);
  Matrix x = Matrix(21, c.k, element()).randomize(2);
  expectProduct(run(kernel, c, x, w), x, w);
}

TEST_P(GemmTest, RoundsToHalfTheWidth) {
  // The last column of 65 is a tile's only one, stored after the next row's.
  for (GemmCase c : {GemmCase{70, 64, 96}, GemmCase{65, 64, 32}})
    for (Element output : {Element::BF16, Element::F16}) {
      // Sums of integers are beyond the range of f16.
      if (element() == Element::I8 && output == Element::F16)
        continue;
      CompiledKernel kernel(gemmText(c, element(), dtype(output)), isa());
      ASSERT_TRUE(kernel.ok());
      Matrix w = Matrix(c.n, c.k, element()).randomize(3);
      Matrix x = Matrix(9, c.k, element()).randomize(4);
      expectProduct(run(kernel, c, x, w, output), x, w);
    }
}

// Chunked and one-shot runs are bit-equal only if a row's result doesn't depend
// on the rows beside it.
TEST_P(GemmTest, RowsDoNotDependOnTheirNeighbours) {
  for (GemmCase c :
       {GemmCase{96, 127, 96},
        // Few rows take one pass over K, more rows several: sums must go on
        // where the pass before left them.
        GemmCase{96, 130, 96, 64, 0, 64},
        // Several tiles, chunks and groups of chunks; a pass ends in a pair.
        GemmCase{96, 127, 32, 16, 0, 32, 16},
        // Every pass takes a multiple of four steps, the last one fewer.
        GemmCase{96, 136, 96, 64, 0, 64},
        // Passes of no whole number of vectors.
        GemmCase{64, 205, 64, 64, 0, 36},
        // K of whole AMX tiles: passes of them, cut to them, and its own.
        GemmCase{96, 128, 96, 64, 0, 64}, GemmCase{96, 160, 32, 16, 0, 36, 16},
        GemmCase{64, 1088, 64},
        // Groups of padded columns over several passes.
        GemmCase{160, 128, 80, 64, 40, 64},
        // 64 rows and more in one chunk: passes of f32 copies, the last one of
        // one k, of half a pair, of groups of padded columns.
        GemmCase{64, 513, 64, 128}, GemmCase{96, 1039, 32, 128},
        GemmCase{160, 1088, 80, 128, 40}}) {
    SCOPED_TRACE("K = " + std::to_string(c.k) +
                 ", block_k = " + std::to_string(c.blockK));
    CompiledKernel kernel(gemmText(c, element(), "f32"), isa());
    ASSERT_TRUE(kernel.ok());
    Matrix w = Matrix(c.n, c.k, element()).randomize(5);
    Matrix x = Matrix(70, c.k, element()).randomize(6);
    Matrix whole = run(kernel, c, x, w);
    expectProduct(whole, x, w);
    for (int64_t rows :
         {1, 3, 4, 6, 8, 9, 13, 16, 17, 31, 32, 33, 48, 64, 65, 69}) {
      Matrix head(rows, c.k, element());
      std::copy_n(x.values.begin(), head.values.size(), head.values.begin());
      Matrix out = run(kernel, c, head, w);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t n = 0; n < c.n; ++n)
          ASSERT_EQ(out.at(r, n), whole.at(r, n))
              << "row " << r << " of " << rows;
    }
    // Padded rows may hold NaN.
    Matrix poisoned = x;
    for (int64_t r = 66; r < 70; ++r)
      for (int64_t k = 0; k < c.k; ++k)
        poisoned.at(r, k) = kNaN;
    Matrix out = run(kernel, c, poisoned, w);
    for (int64_t r = 0; r < 66; ++r)
      for (int64_t n = 0; n < c.n; ++n)
        ASSERT_EQ(out.at(r, n), whole.at(r, n)) << "row " << r;
  }
}

std::vector<std::tuple<std::string, Element>> variants() {
  std::vector<std::tuple<std::string, Element>> all;
  for (const mlir::prefill::CpuIsa &isa : mlir::prefill::cpuIsas())
    for (Element element :
         {Element::F32, Element::BF16, Element::F16, Element::I8})
      if (!isa.onlyInt8 || element == Element::I8)
        all.push_back({isa.name.str(), element});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Isas, GemmTest, testing::ValuesIn(variants()),
                         [](const auto &info) {
                           return std::get<0>(info.param) + "_" +
                                  dtype(std::get<1>(info.param));
                         });

TEST(GemmRefusal, PassThatCutsAPair) {
  EXPECT_THAT(
      CompiledKernel::errorOf(
          gemmText({64, 64, 64, 64, 0, 31}, Element::BF16, "f32"), "avx512"),
      testing::HasSubstr(
          "has prefill.block_k = 31; expected a positive multiple of 2"));
}

TEST(GemmRefusal, TileThatCutsAPanel) {
  EXPECT_THAT(
      CompiledKernel::errorOf(gemmText({64, 32, 48}, Element::F32, "f32"),
                              "avx2"),
      testing::HasSubstr("has block_n = 48; expected a multiple of 32"));
}

TEST(GemmRefusal, SizesThatNoTableGives) {
  auto errorWith = [](const std::string &size, const std::string &other) {
    std::string text = gemmText({64, 32, 64}, Element::F32, "f32");
    text.replace(text.find(size), size.size(), other);
    return CompiledKernel::errorOf(text, "avx2");
  };
  EXPECT_THAT(
      errorWith("group_n = 64", "group_n = 0"),
      testing::HasSubstr("has prefill.group_n = 0; expected a divisor of 64"));
  EXPECT_THAT(errorWith("block_m = 64", "block_m = 9223372036854775800"),
              testing::HasSubstr("expected at most 1048576"));
}

TEST(GemmRefusal, UnknownIsa) {
  EXPECT_THAT(CompiledKernel::errorOf(
                  gemmText({64, 32, 64}, Element::F32, "f32"), "sse2"),
              testing::HasSubstr(
                  "unknown isa 'sse2'; valid are avx2, avx_vnni, avx512, "
                  "avx512_vnni, avx512_bf16, amx_bf16"));
}

/// A gemm of integers whose epilogue scales its sums.
class DequantizeTest : public IsaTest<> {};

TEST_P(DequantizeTest, ScalesOfRowsAndColumns) {
  // Several tiles and chunks, and columns that no vector ends with.
  constexpr int64_t n = 131, k = 200;
  std::string x = rowsType(k, "i8"), w = packedType(n, k, n, Element::I8),
              acc = rowsType(n, "f32"), rowScale = rowsType(1, "f32"),
              scale = "tensor<131xf32>", out = rowsType(n, "bf16");
  CompiledKernel kernel(
      "func.func private @gemm(%x: " + x + ", %w: " + w +
          ", %batch: !prefill.batch, %r: " + rowScale + ", %c: " + scale +
          ") -> " + out + " attributes {prefill.kernel} {\n" +
          "%0 = prefill.gemm %x, %w {" + config(16, 32) +
          ", prefill.group_n = 131} : " + x + ", " + w + " -> " + out +
          " epilogue {\n^bb0(%acc: " + acc +
          "):\n%s = prefill.dequantize %acc, %r, %c : " + acc + ", " +
          rowScale + ", " + scale + " -> " + acc +
          "\nprefill.yield %s : " + acc + "\n}\nreturn %0 : " + out + "\n}\n",
      isa());
  ASSERT_TRUE(kernel.ok());
  for (int64_t rows : {1, 5, 40}) {
    Matrix input = Matrix(rows, k, Element::I8).randomize(1);
    Matrix weight = Matrix(n, k, Element::I8).randomize(2);
    Matrix rowScales = Matrix(rows, 1, false).randomize(3);
    Matrix columnScales = Matrix(1, n, false).randomize(4);
    Matrix packed = pack(weight, n), held = asHeldBy(isa(), input);
    Matrix result = Matrix(rows, n, true).fill(kNaN);
    Batch batch = Batch::ofRows(rows);
    kernel.run(Arguments()
                   .pointer(held.upload())
                   .pointer(packed.upload())
                   .batch(batch)
                   .pointer(rowScales.upload())
                   .pointer(columnScales.upload())
                   .pointer(result.upload()),
               batch);
    result.download();
    Product product = multiply(input, weight);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < n; ++c) {
        double want =
            product.sum.at(r, c) * rowScales.at(r, 0) * columnScales.at(0, c);
        ASSERT_NEAR(result.at(r, c), want, std::abs(want) / 256)
            << "row " << r << " of " << rows << ", column " << c;
      }
  }
}

std::vector<std::tuple<std::string>> isas() {
  std::vector<std::tuple<std::string>> all;
  for (const mlir::prefill::CpuIsa &isa : mlir::prefill::cpuIsas())
    all.push_back({isa.name.str()});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Isas, DequantizeTest, testing::ValuesIn(isas()),
                         [](const auto &info) {
                           return std::get<0>(info.param);
                         });

// The integers of the largest magnitude in the longest row: no sum overflows.
TEST_P(DequantizeTest, LargestSums) {
  GemmCase c{32, 65536, 32, 16, 0, 4096};
  CompiledKernel kernel(gemmText(c, Element::I8, "f32"), isa());
  ASSERT_TRUE(kernel.ok());
  for (int64_t rows : {1, 12}) {
    Matrix x = asHeldBy(isa(), Matrix(rows, c.k, Element::I8).fill(-127));
    Matrix w = Matrix(c.n, c.k, Element::I8).fill(127);
    for (int64_t k = 0; k < c.k; ++k)
      w.at(1, k) = -127;
    Matrix packed = pack(w, c.n);
    Matrix out = Matrix(rows, c.n, false).fill(kNaN);
    Batch batch = Batch::ofRows(rows);
    kernel.run(Arguments()
                   .pointer(x.upload())
                   .pointer(packed.upload())
                   .batch(batch)
                   .pointer(out.upload()),
               batch);
    out.download();
    double largest = 127.0 * 127 * double(c.k); // 63 * 2^24 and more: inexact
    for (int64_t r = 0; r < rows; ++r) {
      ASSERT_EQ(out.at(r, 0), float(-largest));
      ASSERT_EQ(out.at(r, 1), float(largest));
    }
  }
}

} // namespace
