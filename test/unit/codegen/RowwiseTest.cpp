//===- RowwiseTest.cpp - kernels without a GEMM against plain loops -------===//
#include "IsaTest.h"
#include "RopeReference.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

using Parameter = std::tuple<std::string, bool>;

class RowwiseTest : public IsaTest<bool> {
protected:
  bool bf16() const { return std::get<1>(GetParam()); }
  std::string element() const { return dtype(bf16()); }
  /// Largest error of a value that was computed in f32 and stored.
  double tolerance(double want) const {
    return 1e-6 + 2e-6 * std::abs(want) + (bf16() ? std::abs(want) / 256 : 0.0);
  }
  void expectNear(const Matrix &got, const Matrix &want, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < want.columns; ++c)
        ASSERT_NEAR(got.at(r, c), want.at(r, c), tolerance(want.at(r, c)))
            << "row " << r << " column " << c;
  }
};

/// A kernel whose body is one rowwise.
std::string rowwiseText(const std::string &arguments, const std::string &config,
                        const std::string &body, const std::string &yielded,
                        const std::string &results) {
  bool one = yielded.find(',') == std::string::npos;
  std::string names = one ? "%0" : "%0, %1";
  return "func.func private @rowwise(" + arguments + ") -> (" + results +
         ") attributes {prefill.kernel} {\n" + names + " = prefill.rowwise {" +
         config + "} : " + results + " body {\n" + body + "\nprefill.yield " +
         yielded + " : " + results + "\n}\nreturn " + names + " : " + results +
         "\n}\n";
}

TEST_P(RowwiseTest, EmbedWithRowSums) {
  for (int64_t columns : {64, 65, 80, 200}) {
    constexpr int64_t vocab = 23, rows = 21, blockN = 64;
    int64_t partials = (columns + blockN - 1) / blockN;
    std::string out = rowsType(columns, element());
    std::string sums = rowsType(partials, "f32");
    std::string table =
        "tensor<23x" + std::to_string(columns) + "x" + element() + ">";
    CompiledKernel kernel(
        rowwiseText(
            "%batch: !prefill.batch, %table: " + table, config(8, blockN),
            "%e = prefill.embed %batch, %table : " + table + " -> " + out +
                "\n%s = prefill.row_sumsq %e : " + out + " -> " + sums,
            "%e, %s", out + ", " + sums),
        isa());
    ASSERT_TRUE(kernel.ok());
    Matrix embedding = Matrix(vocab, columns, bf16()).randomize(1);
    // A row more, which the kernel must leave alone.
    Matrix result(rows + 1, columns, bf16()), squares(rows, partials, false);
    Batch batch = Batch::ofRows(rows);
    for (int64_t r = 0; r < rows; ++r)
      batch.tokens[size_t(r)] = int32_t(r * 5 % vocab);
    kernel.run(Arguments()
                   .batch(batch)
                   .pointer(embedding.upload())
                   .pointer(result.fill(kNaN).upload())
                   .pointer(squares.fill(kNaN).upload()),
               batch);
    result.download();
    squares.download();
    for (int64_t c = 0; c < columns; ++c)
      ASSERT_TRUE(std::isnan(result.at(rows, c))) << columns << " columns";
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t p = 0; p < partials; ++p) {
        double sum = 0;
        for (int64_t c = p * blockN; c < std::min(columns, (p + 1) * blockN);
             ++c) {
          double want = embedding.at(batch.tokens[size_t(r)], c);
          ASSERT_EQ(result.at(r, c), want);
          sum += want * want;
        }
        ASSERT_NEAR(squares.at(r, p), sum, 1e-6 * sum);
      }
  }
}

TEST_P(RowwiseTest, SelectedRowsNormalised) {
  for (int64_t columns : {64, 131, 300}) {
    constexpr int64_t rows = 12, selected = 5;
    std::string type = rowsType(columns, element());
    std::string gainType =
        "tensor<" + std::to_string(columns) + "x" + element() + ">";
    CompiledKernel kernel(
        rowwiseText("%x: " + type + ", %batch: !prefill.batch, %g: " + gainType,
                    config(8, 128, "logits"),
                    "%s = prefill.select_rows %x, %batch : " + type + " -> " +
                        type +
                        "\n%n = prefill.rms_norm %s, %g {eps = 1.0e-6} "
                        ": " +
                        type + ", " + gainType + " -> " + type,
                    "%n", type),
        isa());
    ASSERT_TRUE(kernel.ok());
    Matrix x = Matrix(rows, columns, bf16()).randomize(1, 3.0);
    Matrix gain = Matrix(1, columns, bf16()).randomize(2);
    // A row that nobody asks for may hold NaN.
    for (int64_t c = 0; c < columns; ++c)
      x.at(4, c) = kNaN;
    Matrix result = Matrix(selected, columns, bf16()).fill(kNaN);
    Batch batch = Batch::ofRows(rows);
    batch.logitRows = selected;
    batch.logitsIndices = {11, 0, 3, 3, 7};
    kernel.run(Arguments()
                   .pointer(x.upload())
                   .batch(batch)
                   .pointer(gain.upload())
                   .pointer(result.upload()),
               batch);
    Matrix want(selected, columns, false);
    for (int64_t r = 0; r < selected; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < columns; ++c)
        sum += std::pow(x.at(batch.logitsIndices[size_t(r)], c), 2);
      double inverse = 1 / std::sqrt(sum / double(columns) + 1e-6);
      for (int64_t c = 0; c < columns; ++c)
        want.at(r, c) =
            x.at(batch.logitsIndices[size_t(r)], c) * inverse * gain.at(0, c);
    }
    expectNear(result.download(), want, selected);
  }
}

// What is left unfused: one op each.
TEST_P(RowwiseTest, AddAndScaleRoundOnce) {
  constexpr int64_t columns = 70, rows = 9;
  std::string type = rowsType(columns, element());
  CompiledKernel kernel(
      rowwiseText("%a: " + type + ", %b: " + type + ", %batch: !prefill.batch",
                  config(8, 32),
                  "%s = prefill.add %a, %b : " + type + ", " + type + " -> " +
                      type,
                  "%s", type),
      isa());
  ASSERT_TRUE(kernel.ok());
  Matrix a = Matrix(rows, columns, bf16()).randomize(1);
  Matrix b = Matrix(rows, columns, bf16()).randomize(2, 0.01);
  Matrix result = Matrix(rows, columns, bf16()).fill(kNaN);
  Batch batch = Batch::ofRows(rows);
  kernel.run(Arguments()
                 .pointer(a.upload())
                 .pointer(b.upload())
                 .batch(batch)
                 .pointer(result.upload()),
             batch);
  result.download();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      float sum = float(a.at(r, c)) + float(b.at(r, c));
      ASSERT_EQ(result.at(r, c), bf16() ? roundBF16(sum) : double(sum));
    }
}

TEST_P(RowwiseTest, RopeAlone) {
  for (Rope rope : {Rope{64, false}, Rope{32, true}}) {
    constexpr int64_t headDim = 64, heads = 3, rows = 7, positions = 50;
    std::string type = rowsType(heads * headDim, element());
    std::string table = "tensor<50x" + std::to_string(rope.rotaryDim) + "xf32>";
    CompiledKernel kernel(
        rowwiseText("%x: " + type + ", %batch: !prefill.batch, %t: " + table,
                    config(8, headDim),
                    "%r = prefill.rope %x, %batch table(%t : " + table +
                        ") {rope = " + rope.attribute() +
                        ", head_dim = 64} : " + type + " -> " + type,
                    "%r", type),
        isa());
    ASSERT_TRUE(kernel.ok());
    Matrix x = Matrix(rows, heads * headDim, bf16()).randomize(1);
    Matrix angles = rope.table(positions), want = x;
    Matrix result = Matrix(rows, heads * headDim, bf16()).fill(kNaN);
    Batch batch = Batch::ofRows(rows);
    for (int64_t r = 0; r < rows; ++r) {
      batch.positions[size_t(r)] = int32_t(r * 7);
      for (int64_t head = 0; head < heads; ++head)
        rope.apply(want, r, head * headDim, r * 7);
    }
    kernel.run(Arguments()
                   .pointer(x.upload())
                   .batch(batch)
                   .pointer(angles.upload())
                   .pointer(result.upload()),
               batch);
    expectNear(result.download(), want, rows);
  }
}

TEST_P(RowwiseTest, KVAppendAlone) {
  constexpr int64_t headDim = 40, heads = 2, rows = 6, slots = 8;
  std::string type = rowsType(heads * headDim, element());
  std::string cache = "!prefill.kv_cache<contiguous, num_kv_heads = 2, "
                      "head_dim_qk = 40, head_dim_v = 40, dtype = " +
                      element() + ", block_size = 8>";
  CompiledKernel kernel(
      rowwiseText("%k: " + type + ", %v: " + type + ", %cache: " + cache +
                      ", %batch: !prefill.batch",
                  config(8, 80),
                  "%c = prefill.kv_append %k, %v into %cache, %batch : " +
                      type + ", " + type + " into " + cache,
                  "%c", cache),
      isa());
  ASSERT_TRUE(kernel.ok());
  Matrix keys = Matrix(rows, heads * headDim, bf16()).randomize(1);
  Matrix values = Matrix(rows, heads * headDim, bf16()).randomize(2);
  Matrix keyCache = Matrix(slots, heads * headDim, bf16()).fill(kNaN);
  Matrix valueCache = keyCache;
  Batch batch = Batch::ofRows(rows);
  batch.slots = {3, 1, -1, 7, 0, -1};
  kernel.run(Arguments()
                 .pointer(keys.upload())
                 .pointer(values.upload())
                 .pointer(keyCache.upload())
                 .pointer(valueCache.upload())
                 .size(0)
                 .size(heads * headDim)
                 .size(headDim)
                 .batch(batch),
             batch);
  keyCache.download();
  valueCache.download();
  for (int64_t slot = 0; slot < slots; ++slot) {
    auto row = std::find(batch.slots.begin(), batch.slots.end(), slot);
    for (int64_t c = 0; c < heads * headDim; ++c) {
      if (row == batch.slots.end()) {
        ASSERT_TRUE(std::isnan(keyCache.at(slot, c)));
        ASSERT_TRUE(std::isnan(valueCache.at(slot, c)));
        continue;
      }
      ASSERT_EQ(keyCache.at(slot, c), keys.at(row - batch.slots.begin(), c));
      ASSERT_EQ(valueCache.at(slot, c),
                values.at(row - batch.slots.begin(), c));
    }
  }
}

/// One row as quantize_rows has it: f32 arithmetic, rounded once in each step.
struct QuantizedRow {
  float scale;
  std::vector<int> integers;
};
static QuantizedRow quantizeRow(const std::vector<float> &row) {
  float largest = 0;
  for (float value : row)
    largest = std::max(largest, std::abs(value));
  if (largest < 0x1p-100f)
    return {0, std::vector<int>(row.size(), 0)};
  float inverse = 127 / largest;
  QuantizedRow result{largest / 127, {}};
  for (float value : row) {
    volatile float scaled = value * inverse; // no fused multiply-add
    result.integers.push_back(int(std::nearbyint(scaled)));
  }
  return result;
}

TEST_P(RowwiseTest, QuantizeRows) {
  for (int64_t columns : {64, 65, 131, 300, 3}) {
    constexpr int64_t rows = 13;
    std::string type = rowsType(columns, element());
    std::string ints = rowsType(columns, "i8"), scale = rowsType(1, "f32");
    CompiledKernel kernel(
        rowwiseText("%x: " + type + ", %batch: !prefill.batch", config(4, 128),
                    "%q, %s = prefill.quantize_rows %x : " + type + " -> " +
                        ints + ", " + scale,
                    "%q, %s", ints + ", " + scale),
        isa());
    ASSERT_TRUE(kernel.ok());
    Matrix x = Matrix(rows, columns, bf16()).randomize(1, 3.0);
    for (int64_t c = 0; c < columns; ++c) {
      x.at(1, c) = 0;
      x.at(2, c) *= 0x1p-110; // next to nothing: zeros
      x.at(3, c) *= 0x1p-90;
      x.at(4, c) *= 0x1p+100;
      // Halves of a step: the largest is 127, so that the scale is 1.
      x.at(5, c) = c == 0 ? -127 : double(c % 100) + 0.5;
      x.at(6, c) = c % 7 == 3 ? kNaN : 1;
      x.at(7, c) = c % 7 == 2 ? -std::numeric_limits<double>::infinity() : 1;
    }
    // A row more, which the kernel must leave alone.
    Matrix result(rows + 1, columns, Element::I8), scales(rows, 1, false);
    Batch batch = Batch::ofRows(rows);
    kernel.run(Arguments()
                   .pointer(x.upload())
                   .batch(batch)
                   .pointer(result.fill(-99).upload())
                   .pointer(scales.fill(kNaN).upload()),
               batch);
    result.download();
    scales.download();
    for (int64_t c = 0; c < columns; ++c)
      ASSERT_EQ(result.at(rows, c), -99) << columns << " columns";
    result = asHeldBy(isa(), result);
    ASSERT_FALSE(std::isfinite(scales.at(6, 0)) && columns > 3);
    ASSERT_FALSE(std::isfinite(scales.at(7, 0)));
    for (int64_t r : {0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12}) {
      std::vector<float> row;
      for (int64_t c = 0; c < columns; ++c)
        row.push_back(bf16() ? fromBF16(toBF16(float(x.at(r, c))))
                             : float(x.at(r, c)));
      QuantizedRow want = quantizeRow(row);
      ASSERT_EQ(scales.at(r, 0), want.scale) << "row " << r;
      for (int64_t c = 0; c < columns; ++c)
        ASSERT_EQ(result.at(r, c), want.integers[size_t(c)])
            << "row " << r << " column " << c << " of " << columns;
    }
  }
}

// Without a rounding to the norm's type in between.
TEST_P(RowwiseTest, QuantizeNormalisedRows) {
  constexpr int64_t columns = 200, rows = 9;
  std::string type = rowsType(columns, element());
  std::string f32 = rowsType(columns, "f32");
  std::string ints = rowsType(columns, "i8"), scale = rowsType(1, "f32");
  std::string gainType = "tensor<200x" + element() + ">";
  CompiledKernel kernel(
      rowwiseText("%x: " + type + ", %batch: !prefill.batch, %g: " + gainType,
                  config(8, 64),
                  "%n = prefill.rms_norm %x, %g {eps = 1.0e-6} : " + type +
                      ", " + gainType + " -> " + f32 +
                      "\n%q, %s = prefill.quantize_rows %n : " + f32 + " -> " +
                      ints + ", " + scale,
                  "%q, %s", ints + ", " + scale),
      isa());
  ASSERT_TRUE(kernel.ok());
  Matrix x = Matrix(rows, columns, bf16()).randomize(1, 3.0);
  Matrix gain = Matrix(1, columns, bf16()).randomize(2);
  Matrix result(rows, columns, Element::I8), scales(rows, 1, false);
  Batch batch = Batch::ofRows(rows);
  kernel.run(Arguments()
                 .pointer(x.upload())
                 .batch(batch)
                 .pointer(gain.upload())
                 .pointer(result.upload())
                 .pointer(scales.upload()),
             batch);
  result.download();
  scales.download();
  result = asHeldBy(isa(), result);
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0, largest = 0;
    for (int64_t c = 0; c < columns; ++c)
      sum += std::pow(x.at(r, c), 2);
    std::vector<double> normalised;
    for (int64_t c = 0; c < columns; ++c) {
      normalised.push_back(x.at(r, c) * gain.at(0, c) /
                           std::sqrt(sum / columns + 1e-6));
      largest = std::max(largest, std::abs(normalised.back()));
    }
    ASSERT_NEAR(scales.at(r, 0), largest / 127, 1e-6 * largest);
    for (int64_t c = 0; c < columns; ++c)
      ASSERT_NEAR(result.at(r, c), normalised[size_t(c)] * 127 / largest,
                  0.5 + 1e-3);
  }
}

// The polynomial of exp over all of f32's range.
TEST_P(RowwiseTest, SiluIsAccurate) {
  constexpr int64_t columns = 256, rows = 40;
  std::string type = rowsType(columns, "f32");
  CompiledKernel kernel(
      rowwiseText("%g: " + type + ", %u: " + type + ", %batch: !prefill.batch",
                  config(8, 128),
                  "%a = prefill.gated_act silu %g, %u : " + type + ", " + type +
                      " -> " + type,
                  "%a", type),
      isa());
  ASSERT_TRUE(kernel.ok());
  Matrix gate = Matrix(rows, columns, false).randomize(1);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      gate.at(r, c) = float(gate.at(r, c) * std::pow(1.2, double(r) - 10));
  Matrix up = Matrix(rows, columns, false).fill(1.0);
  Matrix result = Matrix(rows, columns, false).fill(kNaN);
  Batch batch = Batch::ofRows(rows);
  kernel.run(Arguments()
                 .pointer(gate.upload())
                 .pointer(up.upload())
                 .batch(batch)
                 .pointer(result.upload()),
             batch);
  result.download();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      double g = gate.at(r, c), want = g / (1 + std::exp(-g));
      // Below e^-87 the clamped exponential leaves less than 1e-36.
      ASSERT_NEAR(result.at(r, c), want, 4e-7 * std::abs(want) + 1e-36)
          << "silu(" << g << ")";
    }
}

std::vector<Parameter> variants() {
  std::vector<Parameter> all;
  for (const mlir::prefill::CpuIsa &isa : mlir::prefill::cpuIsas())
    for (bool bf16 : {false, true})
      all.push_back({isa.name.str(), bf16});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Isas, RowwiseTest, testing::ValuesIn(variants()),
                         [](const auto &info) {
                           return std::get<0>(info.param) + "_" +
                                  dtype(std::get<1>(info.param));
                         });

TEST(RowwiseRefusal, TileThatCutsAHead) {
  std::string type = rowsType(128, "f32");
  EXPECT_THAT(
      CompiledKernel::errorOf(
          rowwiseText("%x: " + type +
                          ", %batch: !prefill.batch, %t: tensor<8x64xf32>",
                      config(8, 32),
                      "%r = prefill.rope %x, %batch table(%t : "
                      "tensor<8x64xf32>) {rope = #prefill.rope<theta = 1.0e4, "
                      "rotary_dim = 64>, head_dim = 64} : " +
                          type + " -> " + type,
                      "%r", type),
          "avx2"),
      testing::HasSubstr("has head_dim = 64 in a tile of block_n = 32"));
}

} // namespace
