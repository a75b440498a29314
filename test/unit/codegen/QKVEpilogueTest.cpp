//===- QKVEpilogueTest.cpp - row scale, bias, QK-norm, RoPE, KV append ----===//
#include "IsaTest.h"
#include "RopeReference.h"
#include "prefill/Codegen/CPU/TileTable.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

struct QKVCase {
  std::string name;
  int64_t queryHeads, kvHeads, headDim;
  Rope rope;
  bool qkNorm = false, bias = false, rowScale = true;
  std::string layout = "contiguous";
};

constexpr int64_t kHidden = 32, kSlots = 64, kBlockSize = 16, kPartials = 3;
constexpr double kEps = 1e-5, kScale = 0.3;

class QKVKernel {
public:
  QKVKernel(const QKVCase &c, bool bf16) : c(c), bf16(bf16) {}

  int64_t queryColumns() const { return c.queryHeads * c.headDim; }
  int64_t kvColumns() const { return c.kvHeads * c.headDim; }
  int64_t columns() const { return queryColumns() + 2 * kvColumns(); }
  mlir::prefill::ColumnTiling tiling() const {
    return mlir::prefill::selectColumnTiling(
        mlir::prefill::cpuTileSizes(),
        {queryColumns(), kvColumns(), kvColumns()}, c.headDim, 0);
  }

  std::string text() const {
    std::string element = dtype(bf16);
    std::string x = rowsType(kHidden, element);
    std::string w = packedType(columns(), kHidden, tiling().groupN, bf16);
    std::string q = rowsType(queryColumns(), element);
    std::string cache = "!prefill.kv_cache<" + c.layout +
                        ", num_kv_heads = " + std::to_string(c.kvHeads) +
                        ", head_dim_qk = " + std::to_string(c.headDim) +
                        ", head_dim_v = " + std::to_string(c.headDim) +
                        ", dtype = " + element +
                        ", block_size = " + std::to_string(blockSize()) + ">";
    std::string acc = rowsType(columns(), "f32");
    std::string qf = rowsType(queryColumns(), "f32");
    std::string kf = rowsType(kvColumns(), "f32");
    std::string vec =
        "tensor<" + std::to_string(columns()) + "x" + element + ">";
    std::string gain =
        "tensor<" + std::to_string(c.headDim) + "x" + element + ">";
    int64_t rotary = std::max<int64_t>(c.rope.rotaryDim, 2);
    std::string table = "tensor<" + std::to_string(kSlots) + "x" +
                        std::to_string(rotary) + "xf32>";
    std::string sums = rowsType(kPartials, "f32");

    std::string body, acc0 = "%acc";
    if (c.rowScale) {
      body += "%s = prefill.row_rms_scale %acc, %sumsq {eps = 1.0e-5, channels "
              "= 32} : " +
              acc + ", " + sums + " -> " + acc + "\n";
      acc0 = "%s";
    }
    if (c.bias) {
      body += "%b = prefill.bias_add " + acc0 + ", %bias : " + acc + ", " +
              vec + " -> " + acc + "\n";
      acc0 = "%b";
    }
    body += "%q0, %k0, %v0 = prefill.split " + acc0 + " : " + acc + " -> " +
            qf + ", " + kf + ", " + kf + "\n";
    std::string q1 = "%q0", k1 = "%k0";
    if (c.qkNorm) {
      std::string attrs =
          " {eps = 1.0e-5, head_dim = " + std::to_string(c.headDim) + "} : ";
      body += "%q2 = prefill.rms_norm %q0, %qgain" + attrs + qf + ", " + gain +
              " -> " + qf + "\n";
      body += "%k2 = prefill.rms_norm %k0, %kgain" + attrs + kf + ", " + gain +
              " -> " + kf + "\n";
      q1 = "%q2";
      k1 = "%k2";
    }
    if (c.rope.rotaryDim) {
      std::string attrs = ", %batch table(%table : " + table +
                          ") {rope = " + c.rope.attribute() +
                          ", head_dim = " + std::to_string(c.headDim) + "} : ";
      body += "%q3 = prefill.rope " + q1 + attrs + qf + " -> " + qf + "\n";
      body += "%k3 = prefill.rope " + k1 + attrs + kf + " -> " + kf + "\n";
      q1 = "%q3";
      k1 = "%k3";
    }
    body += "%q4 = prefill.scale " + q1 + " {factor = 0.3} : " + qf + " -> " +
            qf + "\n";
    body += "%c1 = prefill.kv_append " + k1 +
            ", %v0 into %cache, %batch : " + kf + ", " + kf + " into " + cache +
            "\n";
    body += "prefill.yield %q4, %c1 : " + qf + ", " + cache + "\n";
    return "func.func private @qkv(%x: " + x + ", %w: " + w +
           ", %sumsq: " + sums + ", %bias: " + vec + ", %qgain: " + gain +
           ", %kgain: " + gain + ", %table: " + table + ", %cache: " + cache +
           ", %batch: !prefill.batch) -> (" + q + ", " + cache +
           ") attributes {prefill.kernel} {\n%0, %1 = prefill.gemm %x, %w {" +
           config(64, tiling().blockN) +
           ", prefill.group_n = " + std::to_string(tiling().groupN) +
           "} : " + x + ", " + w + " -> " + q + ", " + cache +
           " epilogue {\n^bb0(%acc: " + acc + "):\n" + body +
           "}\nreturn %0, %1 : " + q + ", " + cache + "\n}\n";
  }

  bool isVNNI() const { return c.layout == "paged_vnni"; }
  int64_t blockSize() const {
    return isVNNI() ? 32 : c.layout == "paged_nhd" ? kBlockSize : kSlots;
  }
  /// Features that a head takes in the cache: values of paged_vnni in panels.
  int64_t features() const {
    return isVNNI() ? (c.headDim + 31) / 32 * 32 : c.headDim;
  }
  // Strides in elements, and where V starts in the one allocation of K and V.
  int64_t blockStride() const {
    return 2 * (isVNNI() ? 32 : kBlockSize) * c.kvHeads * features();
  }
  int64_t tokenStride() const {
    return c.layout == "head_major" ? c.headDim : kvColumns();
  }
  int64_t headStride() const {
    return isVNNI()                   ? 32 * features()
           : c.layout == "head_major" ? kSlots * c.headDim
                                      : c.headDim;
  }
  int64_t valueStart() const {
    return (c.layout == "contiguous" || c.layout == "head_major"
                ? kSlots
                : blockSize()) *
           c.kvHeads * features();
  }
  int64_t cacheElements() const { return 2 * kSlots * c.kvHeads * features(); }
  int64_t element(int64_t slot, int64_t head, int64_t d, bool isKey) const {
    int64_t block = slot / blockSize() * blockStride() + head * headStride();
    int64_t t = slot % blockSize(), p = bf16 ? 2 : 1;
    if (!isVNNI())
      return block + t * tokenStride() + d;
    return block +
           (isKey ? d / p * 32 * p + t * p + d % p
                  : d / 32 * 32 * 32 + t / p * 32 * p + d % 32 * p + t % p);
  }

  QKVCase c;
  bool bf16;
};

using Parameter = std::tuple<std::string, bool, QKVCase>;

class QKVEpilogueTest : public IsaTest<bool, QKVCase> {};

TEST_P(QKVEpilogueTest, MatchesPlainLoops) {
  auto [isa, bf16, c] = GetParam();
  QKVKernel kernel(c, bf16);
  CompiledKernel compiled(kernel.text(), isa);
  ASSERT_TRUE(compiled.ok());

  constexpr int64_t rows = 21, realRows = 19;
  Matrix x = Matrix(rows, kHidden, bf16).randomize(1);
  Matrix w = Matrix(kernel.columns(), kHidden, bf16).randomize(2, 0.4);
  Matrix sums = Matrix(rows, kPartials, false).randomize(3);
  for (double &sum : sums.values)
    sum = float(std::abs(sum) * 10);
  Matrix bias = Matrix(1, kernel.columns(), bf16).randomize(4);
  Matrix queryGain = Matrix(1, c.headDim, bf16).randomize(5);
  Matrix keyGain = Matrix(1, c.headDim, bf16).randomize(6);
  Matrix table =
      c.rope.rotaryDim ? c.rope.table(kSlots) : Matrix(kSlots, 2, false);
  Batch batch = Batch::ofRows(rows);
  for (int64_t r = 0; r < rows; ++r) {
    batch.positions[size_t(r)] = int32_t((r * 11 + 3) % kSlots);
    batch.slots[size_t(r)] = (r * 13 + 5) % kSlots;
  }
  batch.slots[4] = -1;
  for (int64_t r = realRows; r < rows; ++r) {
    batch.slots[size_t(r)] = -1;
    batch.positions[size_t(r)] = 0;
    for (int64_t k = 0; k < kHidden; ++k)
      x.at(r, k) = kNaN;
  }
  Matrix cache(1, kernel.cacheElements(), bf16);
  cache.fill(kNaN);
  Matrix query(rows, kernel.queryColumns(), bf16);
  Matrix packed = pack(w, kernel.tiling().groupN);

  auto *cacheData = static_cast<const char *>(cache.upload());
  compiled.run(Arguments()
                   .pointer(x.upload())
                   .pointer(packed.upload())
                   .pointer(sums.upload())
                   .pointer(bias.upload())
                   .pointer(queryGain.upload())
                   .pointer(keyGain.upload())
                   .pointer(table.upload())
                   .pointer(cacheData)
                   .pointer(cacheData + kernel.valueStart() * (bf16 ? 2 : 4))
                   .size(kernel.blockStride())
                   .size(kernel.tokenStride())
                   .size(kernel.headStride())
                   .batch(batch)
                   .pointer(query.upload()),
               batch);
  query.download();
  cache.download();

  Matrix want = multiply(x, w).sum;
  std::vector<bool> written(cache.values.size(), false);
  auto expectNear = [&, bf16 = bf16](double got, double expected) {
    return std::abs(got - expected) <=
           3e-5 + 1e-5 * std::abs(expected) +
               (bf16 ? std::abs(expected) / 256 : 0.0);
  };
  for (int64_t r = 0; r < realRows; ++r) {
    double sum = 0;
    for (int64_t p = 0; p < kPartials; ++p)
      sum += sums.at(r, p);
    double rowScale =
        c.rowScale ? 1 / std::sqrt(sum / double(kHidden) + kEps) : 1.0;
    for (int64_t n = 0; n < kernel.columns(); ++n)
      want.at(r, n) = want.at(r, n) * rowScale + (c.bias ? bias.at(0, n) : 0.0);
    for (int64_t head = 0; head < c.queryHeads + c.kvHeads; ++head) {
      int64_t start = head * c.headDim;
      if (c.qkNorm) {
        const Matrix &gain = head < c.queryHeads ? queryGain : keyGain;
        double squares = 0;
        for (int64_t d = 0; d < c.headDim; ++d)
          squares += want.at(r, start + d) * want.at(r, start + d);
        double inverse = 1 / std::sqrt(squares / double(c.headDim) + kEps);
        for (int64_t d = 0; d < c.headDim; ++d)
          want.at(r, start + d) *= inverse * gain.at(0, d);
      }
      c.rope.apply(want, r, start, batch.positions[size_t(r)]);
    }
    for (int64_t n = 0; n < kernel.queryColumns(); ++n)
      ASSERT_PRED2(expectNear, query.at(r, n), want.at(r, n) * kScale)
          << "query row " << r << " column " << n;
    int64_t slot = batch.slots[size_t(r)];
    if (slot < 0)
      continue;
    for (int64_t head = 0; head < c.kvHeads; ++head)
      for (int64_t d = 0; d < c.headDim; ++d) {
        int64_t key = kernel.element(slot, head, d, /*isKey=*/true);
        int64_t value = kernel.valueStart() +
                        kernel.element(slot, head, d, /*isKey=*/false);
        int64_t column = kernel.queryColumns() + head * c.headDim + d;
        ASSERT_PRED2(expectNear, cache.at(0, key), want.at(r, column))
            << "key row " << r << " head " << head << " d " << d;
        ASSERT_PRED2(expectNear, cache.at(0, value),
                     want.at(r, column + kernel.kvColumns()))
            << "value row " << r << " head " << head << " d " << d;
        written[size_t(key)] = written[size_t(value)] = true;
      }
    // A key is padded with a zero to a whole pair.
    if (kernel.isVNNI() && bf16 && c.headDim % 2)
      for (int64_t head = 0; head < c.kvHeads; ++head) {
        int64_t pad = kernel.element(slot, head, c.headDim, /*isKey=*/true);
        ASSERT_EQ(cache.at(0, pad), 0.0) << "row " << r << " head " << head;
        written[size_t(pad)] = true;
      }
    // The padding of a token's own values may hold anything.
    for (int64_t head = 0; head < c.kvHeads; ++head)
      for (int64_t d = c.headDim; d < kernel.features(); ++d)
        written[size_t(kernel.valueStart() +
                       kernel.element(slot, head, d, /*isKey=*/false))] = true;
  }
  // Nothing else was written: slots that no row has, and slot -1.
  for (size_t i = 0; i < written.size(); ++i)
    if (!written[i])
      ASSERT_TRUE(std::isnan(cache.values[i])) << "element " << i;
}

std::vector<Parameter> parameters() {
  std::vector<QKVCase> cases{
      {"mha_d32", 2, 2, 32, {32}, false, false},
      {"gqa_d64_bias_head_major",
       4,
       2,
       64,
       {64},
       false,
       true,
       true,
       "head_major"},
      {"gqa3_d128_qknorm_paged",
       6,
       2,
       128,
       {128},
       true,
       false,
       true,
       "paged_nhd"},
      {"mqa_d40_interleaved_paged",
       3,
       1,
       40,
       {40, true},
       true,
       true,
       true,
       "paged_nhd"},
      {"gqa_d24_partial", 4, 2, 24, {12}, true, true, true, "head_major"},
      {"d64_partial_interleaved", 2, 1, 64, {20, true}, false, false, false},
      {"d80_no_rope", 2, 1, 80, {0}, false, true, false, "paged_nhd"},
      {"d16_eight_heads", 16, 8, 16, {16}, true, false},
      {"gqa_d64_vnni", 4, 2, 64, {64}, false, true, true, "paged_vnni"},
      {"gqa_d128_qknorm_vnni",
       6,
       2,
       128,
       {128},
       true,
       false,
       true,
       "paged_vnni"},
      {"mqa_d40_interleaved_vnni",
       3,
       1,
       40,
       {40, true},
       true,
       true,
       true,
       "paged_vnni"},
      {"d25_no_rope_vnni", 2, 1, 25, {0}, false, true, false, "paged_vnni"},
  };
  std::vector<Parameter> all;
  // Variants for 8-bit integers alone have the code of another one here.
  for (const mlir::prefill::CpuIsa &isa : mlir::prefill::cpuIsas())
    for (bool bf16 : {false, true})
      for (const QKVCase &c : cases)
        if (!isa.onlyInt8)
          all.push_back({isa.name.str(), bf16, c});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Isas, QKVEpilogueTest, testing::ValuesIn(parameters()),
                         [](const auto &info) {
                           return std::get<0>(info.param) + "_" +
                                  dtype(std::get<1>(info.param)) + "_" +
                                  std::get<2>(info.param).name;
                         });

} // namespace
