//===- GemmTest.cpp - CUDA gemms against plain loops ----------------------===//
#include "CudaKernel.h"
#include "mlir/IR/BuiltinOps.h"
#include "prefill/Target/CUDA/CompileCudaObject.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

struct GemmCase {
  int64_t n, k, blockM, blockN;
  int64_t groupM = 0; // 0: all rows
};

std::string gemmText(const GemmCase &c, const std::string &element,
                     const std::string &output) {
  std::string x = rowsType(c.k, element), w = matrixType(c.n, c.k, element),
              acc = rowsType(c.n, "f32"), out = rowsType(c.n, output);
  return "func.func private @gemm(%x: " + x + ", %w: " + w +
         ", %batch: !prefill.batch) -> " + out +
         " attributes {prefill.kernel} {\n  %0 = prefill.gemm %x, %w {" +
         config(c.blockM, c.blockN) +
         (c.groupM ? ", prefill.group_m = " + std::to_string(c.groupM) : "") +
         "} : " + x + ", " + w + " -> " + out +
         " epilogue {\n  ^bb0(%acc: " + acc +
         "):\n    prefill.yield %acc : " + acc + "\n  }\n  return %0 : " + out +
         "\n}\n";
}

class GemmTest : public testing::TestWithParam<Element> {
protected:
  Element element() const { return GetParam(); }
  std::string text(const GemmCase &c, const std::string &output) const {
    return gemmText(c, dtype(element()), output);
  }

  LaunchCounters run(CudaKernel &kernel, DeviceMatrix &x, DeviceMatrix &w,
                     DeviceMatrix &out, uint64_t seed = 0) {
    out.fill(kNaN);
    Batch batch = Batch::ofRows(x.rows);
    LaunchOptions options;
    options.seed = seed;
    LaunchCounters counters = kernel.run(
        Arguments().matrix(x, "x").matrix(w, "w").batch(batch).matrix(
            out, "out", true),
        batch, options);
    out.download();
    return counters;
  }

  void expectProduct(const DeviceMatrix &out, const DeviceMatrix &x,
                     const DeviceMatrix &w) {
    Product product = multiply(x, w);
    for (int64_t r = 0; r < out.rows; ++r)
      for (int64_t n = 0; n < out.columns; ++n) {
        double want = product.sum.at(r, n);
        double tolerance = 1e-6 * product.magnitude.at(r, n) + 1e-7 +
                           std::abs(want) * unitOf(out.element);
        ASSERT_NEAR(out.at(r, n), want, tolerance)
            << "row " << r << " of " << out.rows << ", column " << n << " of "
            << out.columns << ", K = " << x.columns;
      }
  }
};

// Every tile height with rows around it; K shorter than a stage, one that ends
// within a stage, and more stages than there are; narrow, cut and odd widths.
TEST_P(GemmTest, TilesAndTheirEdges) {
  for (GemmCase c : {GemmCase{128, 64, 128, 128}, GemmCase{72, 40, 128, 64},
                     GemmCase{64, 232, 64, 64}, GemmCase{48, 8, 64, 48},
                     GemmCase{24, 64, 64, 24}, GemmCase{96, 64, 32, 96},
                     GemmCase{200, 136, 16, 64}, GemmCase{77, 72, 16, 16},
                     GemmCase{256, 96, 64, 256}, GemmCase{384, 64, 128, 192},
                     GemmCase{96, 64, 64, 32, 128}}) {
    CudaKernel kernel(text(c, "f32"));
    ASSERT_TRUE(kernel.ok());
    DeviceMatrix w = DeviceMatrix(c.n, c.k, element()).randomize(1);
    uint64_t seed = 0;
    for (int64_t rows : {int64_t(1), int64_t(16), int64_t(17), c.blockM - 1,
                         c.blockM, c.blockM + 1}) {
      DeviceMatrix x =
          DeviceMatrix(rows, c.k, element()).randomize(uint64_t(rows));
      DeviceMatrix out(rows, c.n, Element::F32);
      run(kernel, x, w, out, seed++);
      expectProduct(out, x, w);
      if (HasFatalFailure())
        return;
    }
  }
}

// The tile of an 8B model's widest products: whole tiles with K as long as
// there, and remainders in rows and columns with a shorter one.
TEST_P(GemmTest, LargestTile) {
  struct {
    int64_t rows, n, k;
  } shapes[] = {{128, 256, 4096}, {257, 320, 520}, {1, 768, 520}};
  for (auto [rows, n, k] : shapes) {
    CudaKernel kernel(text({n, k, 128, 256, 256}, dtype(element())));
    ASSERT_TRUE(kernel.ok());
    DeviceMatrix w = DeviceMatrix(n, k, element()).randomize(1);
    DeviceMatrix x = DeviceMatrix(rows, k, element()).randomize(2);
    DeviceMatrix out(rows, n, element());
    run(kernel, x, w, out, 1);
    expectProduct(out, x, w);
  }
}

TEST_P(GemmTest, OneBlockOverAllTiles) {
  GemmCase c{80, 64, 16, 32};
  KernelOptions options;
  options.tiling = "prefill-tile{plain=true}";
  CudaKernel kernel(text(c, dtype(element())), options);
  ASSERT_TRUE(kernel.ok());
  DeviceMatrix w = DeviceMatrix(c.n, c.k, element()).randomize(1);
  DeviceMatrix x = DeviceMatrix(37, c.k, element()).randomize(2);
  DeviceMatrix out(37, c.n, element());
  for (uint64_t seed : {0, 1, 2, 3}) {
    run(kernel, x, w, out, seed);
    expectProduct(out, x, w);
  }
}

// A row's bits depend neither on the rows beside it, which may be padding with
// NaN, nor on the tile.
TEST_P(GemmTest, RowsDoNotDependOnTheirNeighboursOrTheTile) {
  DeviceMatrix w = DeviceMatrix(96, 128, element()).randomize(5);
  DeviceMatrix x = DeviceMatrix(70, 128, element()).randomize(6);
  DeviceMatrix reference(70, 96, Element::F32);
  CudaKernel first(text({96, 128, 64, 96}, "f32"));
  ASSERT_TRUE(first.ok());
  run(first, x, w, reference);
  for (int64_t r = 66; r < 70; ++r)
    x.fillRow(r, kNaN);
  for (GemmCase c : {GemmCase{96, 128, 64, 96}, GemmCase{96, 128, 128, 96},
                     GemmCase{96, 128, 16, 32}, GemmCase{96, 128, 32, 48}}) {
    CudaKernel kernel(text(c, "f32"));
    ASSERT_TRUE(kernel.ok());
    DeviceMatrix out(70, 96, Element::F32);
    run(kernel, x, w, out, 1);
    for (int64_t r = 0; r < 66; ++r)
      for (int64_t n = 0; n < 96; ++n)
        ASSERT_EQ(out.at(r, n), reference.at(r, n)) << r << " " << n;
    // A few rows alone are multiplied in a loop of their own.
    DeviceMatrix few(9, 128, element()), fewOut(9, 96, Element::F32);
    std::copy_n(x.values.begin(), few.values.size(), few.values.begin());
    LaunchCounters counters = run(kernel, few, w, fewOut, 2);
    for (int64_t r = 0; r < 9; ++r)
      for (int64_t n = 0; n < 96; ++n)
        ASSERT_EQ(fewOut.at(r, n), reference.at(r, n)) << r << " " << n;
    // Of each warp 16 rows, whatever the tile's height.
    int64_t warpsM = c.blockM >= 64 ? 2 : 1;
    EXPECT_EQ(counters.matrixInstructions,
              uint64_t(warpsM * 96 / 8 * 128 / 16));
  }
}

// What the device would be asked for, in numbers.
TEST_P(GemmTest, NoBankConflictsAndWholeSectors) {
  for (GemmCase c : {GemmCase{256, 256, 128, 128}, GemmCase{256, 256, 128, 256},
                     GemmCase{128, 256, 64, 64}, GemmCase{128, 256, 16, 64},
                     GemmCase{192, 256, 32, 96}})
    for (bool logits : {false, true}) {
      CudaKernel kernel(text(c, logits ? "f32" : dtype(element())));
      ASSERT_TRUE(kernel.ok());
      int64_t rows = 2 * c.blockM;
      DeviceMatrix w = DeviceMatrix(c.n, c.k, element()).randomize(1);
      DeviceMatrix x = DeviceMatrix(rows, c.k, element()).randomize(2);
      DeviceMatrix out(rows, c.n, logits ? Element::F32 : element());
      LaunchCounters counters = run(kernel, x, w, out);
      std::string what = std::to_string(c.blockM) + "x" +
                         std::to_string(c.blockN) + (logits ? " f32" : "");
      for (const char *site :
           {"gemm.load_a", "gemm.load_b", "gemm.read_a", "gemm.read_b",
            "epilogue.stage_store", "epilogue.stage_load"}) {
        SiteCounters at = siteCounters(counters, site);
        EXPECT_GT(at.requests, 0u) << what << " " << site;
        // Rows of a staging tile whose chunks do not fill quarter warps meet.
        if (c.blockN % 64 == 0 || std::string(site).starts_with("gemm."))
          EXPECT_EQ(at.bankConflicts, 0u) << what << " " << site;
      }
      uint64_t tilesN = uint64_t((c.n + c.blockN - 1) / c.blockN);
      uint64_t tilesM = uint64_t(rows / c.blockM);
      SiteCounters a = siteCounters(counters, "gemm.load_a");
      SiteCounters b = siteCounters(counters, "gemm.load_b");
      SiteCounters stores = siteCounters(counters, "epilogue.store");
      // The tile formula: rows of A once for each tile of columns, and the
      // other way round.
      EXPECT_EQ(a.globalBytes, uint64_t(rows * c.k * 2) * tilesN) << what;
      EXPECT_EQ(b.globalBytes, uint64_t(c.n * c.k * 2) * tilesM) << what;
      EXPECT_EQ(a.sectors * 32, a.globalBytes) << what;
      EXPECT_EQ(b.sectors * 32, b.globalBytes) << what;
      EXPECT_EQ(stores.globalBytes, uint64_t(rows * c.n * out.elementBytes()))
          << what;
      EXPECT_EQ(stores.sectors * 32, stores.globalBytes) << what;
      uint64_t products = uint64_t(rows) * uint64_t(c.n) * uint64_t(c.k);
      EXPECT_EQ(counters.matrixInstructions, products / (16 * 8 * 16)) << what;
    }
}

INSTANTIATE_TEST_SUITE_P(Types, GemmTest,
                         testing::Values(Element::BF16, Element::F16),
                         [](const auto &info) { return dtype(info.param); });

// The assembler keeps few registers for blocks that are no power of two.
TEST(GemmAssembly, BlocksOfThreeWarpsDoNotSpill) {
  std::optional<std::string> assembler = mlir::prefill::findAssembler();
  if (!assembler)
    GTEST_SKIP() << "no ptxas";
  for (const char *element : {"bf16", "f16"})
    for (int64_t columns : {4096, 4097}) {
      KernelOptions options;
      options.edit = [&](mlir::ModuleOp module) {
        auto object = mlir::prefill::compileCudaObject(
            module, *mlir::prefill::lookupCudaChip("sm_80"), assembler);
        EXPECT_TRUE(succeeded(object));
        if (failed(object))
          return false;
        EXPECT_EQ(object->kernels.at(0).spillBytes, 0)
            << element << " " << columns;
        return true;
      };
      CudaKernel kernel(gemmText({columns, 896, 16, 48, 864}, element, "f32"),
                        options);
      EXPECT_TRUE(kernel.ok());
      EXPECT_EQ(kernel.blockThreads, 96);
    }
}

TEST(GemmRefusal, NamesWhatItCannotDo) {
  EXPECT_THAT(CudaKernel::errorOf(gemmText({64, 64, 64, 64}, "f32", "f32")),
              testing::HasSubstr("has element type 'f32'; target cuda has gemm "
                                 "kernels for bf16 and f16"));
  EXPECT_THAT(CudaKernel::errorOf(gemmText({64, 36, 64, 64}, "bf16", "f32")),
              testing::HasSubstr("has K = 36; target cuda needs a multiple of "
                                 "8"));
  EXPECT_THAT(CudaKernel::errorOf(gemmText({64, 64, 80, 64}, "bf16", "f32")),
              testing::HasSubstr("has block_m = 80 and block_n = 64, which "
                                 "target cuda:sm_80 has no tile for"));
  KernelOptions options;
  options.chip = "sm_75";
  EXPECT_THAT(
      CudaKernel::errorOf(gemmText({64, 64, 64, 64}, "bf16", "f32"), options),
      testing::HasSubstr(
          "unknown chip 'sm_75'; valid are sm_80, sm_86, sm_89, sm_90"));
}

} // namespace
