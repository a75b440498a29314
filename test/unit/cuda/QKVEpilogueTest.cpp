//===- QKVEpilogueTest.cpp - row scale, bias, QK-norm, RoPE, KV append ----===//
#include "CudaKernel.h"
#include "RopeReference.h"
#include "prefill/Codegen/CUDA/GemmTileTable.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

struct QKVCase {
  std::string name;
  int64_t queryHeads, kvHeads, headDim;
  int64_t blockM, blockN;
  Rope rope;
  bool qkNorm = false, bias = false, rowScale = true;
  std::string layout = "contiguous";
};

constexpr int64_t kHidden = 32, kSlots = 64, kBlockSize = 16, kPartials = 3;
constexpr double kEps = 1e-5, kScale = 0.3;

class QKVKernel {
public:
  QKVKernel(const QKVCase &c, Element element) : c(c), type(element) {}

  int64_t queryColumns() const { return c.queryHeads * c.headDim; }
  int64_t kvColumns() const { return c.kvHeads * c.headDim; }
  int64_t columns() const { return queryColumns() + 2 * kvColumns(); }
  std::string text() const {
    std::string element = dtype(type);
    std::string x = rowsType(kHidden, element);
    std::string w = matrixType(columns(), kHidden, element);
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
           config(c.blockM, c.blockN) + "} : " + x + ", " + w + " -> " + q +
           ", " + cache + " epilogue {\n^bb0(%acc: " + acc + "):\n" + body +
           "}\nreturn %0, %1 : " + q + ", " + cache + "\n}\n";
  }

  int64_t blockSize() const {
    return c.layout == "paged_nhd" ? kBlockSize : kSlots;
  }
  // Strides in elements, and where V starts in the one allocation of K and V.
  int64_t blockStride() const { return 2 * kBlockSize * kvColumns(); }
  int64_t tokenStride() const {
    return c.layout == "head_major" ? c.headDim : kvColumns();
  }
  int64_t headStride() const {
    return c.layout == "head_major" ? kSlots * c.headDim : c.headDim;
  }
  int64_t valueStart() const { return blockSize() * kvColumns(); }
  int64_t cacheElements() const { return 2 * kSlots * kvColumns(); }
  int64_t element(int64_t slot, int64_t head, int64_t d) const {
    return slot / blockSize() * blockStride() + head * headStride() +
           slot % blockSize() * tokenStride() + d;
  }

  QKVCase c;
  Element type;
};

using Parameter = std::tuple<Element, QKVCase>;

class QKVEpilogueTest : public testing::TestWithParam<Parameter> {};

TEST_P(QKVEpilogueTest, MatchesPlainLoops) {
  auto [element, c] = GetParam();
  QKVKernel kernel(c, element);
  CudaKernel compiled(kernel.text());
  ASSERT_TRUE(compiled.ok());

  constexpr int64_t rows = 21, realRows = 19;
  DeviceMatrix x = DeviceMatrix(rows, kHidden, element).randomize(1);
  DeviceMatrix w =
      DeviceMatrix(kernel.columns(), kHidden, element).randomize(2, 0.4);
  DeviceMatrix sums = DeviceMatrix(rows, kPartials, Element::F32).randomize(3);
  for (double &sum : sums.values)
    sum = float(std::abs(sum) * 10);
  DeviceMatrix bias = DeviceMatrix(1, kernel.columns(), element).randomize(4);
  DeviceMatrix queryGain = DeviceMatrix(1, c.headDim, element).randomize(5);
  DeviceMatrix keyGain = DeviceMatrix(1, c.headDim, element).randomize(6);
  DeviceMatrix table = c.rope.rotaryDim ? c.rope.table(kSlots)
                                        : DeviceMatrix(kSlots, 2, Element::F32);
  Batch batch = Batch::ofRows(rows);
  for (int64_t r = 0; r < rows; ++r) {
    batch.positions[size_t(r)] = int32_t((r * 11 + 3) % kSlots);
    batch.slots[size_t(r)] = (r * 13 + 5) % kSlots;
  }
  batch.slots[4] = -1;
  for (int64_t r = realRows; r < rows; ++r) {
    batch.slots[size_t(r)] = -1;
    batch.positions[size_t(r)] = 0;
    x.fillRow(r, kNaN);
    sums.fillRow(r, kNaN);
  }
  DeviceMatrix cache(1, kernel.cacheElements(), element);
  DeviceMatrix query(rows, kernel.queryColumns(), element);

  LaunchCounters counters;
  for (uint64_t seed : {0, 1, 2}) {
    cache.fill(kNaN);
    query.fill(kNaN);
    Arguments arguments;
    arguments.matrix(x, "x").matrix(w, "w").matrix(sums, "sumsq");
    arguments.matrix(bias, "bias").matrix(queryGain, "q_gain");
    arguments.matrix(keyGain, "k_gain").matrix(table, "table");
    arguments.matrix(cache, "cache", true)
        .inside(cache, kernel.valueStart() * cache.elementBytes())
        .word(kernel.blockStride())
        .word(kernel.tokenStride())
        .word(kernel.headStride())
        .batch(batch)
        .matrix(query, "q", true);
    LaunchOptions options;
    options.seed = seed;
    options.checkBlockRaces = true;
    counters = compiled.run(arguments, batch, options);
  }
  query.download();
  cache.download();
  // Every key and value once, and no other byte.
  for (const char *site : {"kv_append.store_k", "kv_append.store_v"})
    EXPECT_EQ(siteCounters(counters, site).globalBytes,
              uint64_t((realRows - 1) * kernel.kvColumns() * 2));

  DeviceMatrix want = multiply(x, w).sum;
  std::vector<bool> written(cache.values.size(), false);
  auto expectNear = [unit = unitOf(element)](double got, double expected) {
    return std::abs(got - expected) <=
           3e-5 + (1e-5 + unit) * std::abs(expected);
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
        const DeviceMatrix &gain = head < c.queryHeads ? queryGain : keyGain;
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
        int64_t key = kernel.element(slot, head, d);
        int64_t value = kernel.valueStart() + key;
        int64_t column = kernel.queryColumns() + head * c.headDim + d;
        ASSERT_PRED2(expectNear, cache.at(0, key), want.at(r, column))
            << "key row " << r << " head " << head << " d " << d;
        ASSERT_PRED2(expectNear, cache.at(0, value),
                     want.at(r, column + kernel.kvColumns()))
            << "value row " << r << " head " << head << " d " << d;
        written[size_t(key)] = written[size_t(value)] = true;
      }
  }
  // Slots that no row has, and slot -1.
  for (size_t i = 0; i < written.size(); ++i)
    if (!written[i])
      ASSERT_TRUE(std::isnan(cache.values[i])) << "element " << i;
}

// Heads of powers of two and others, rotary halves that end within a chunk,
// MQA, GQA and MHA, tiles of one head and of several, every layout.
const QKVCase kCases[] = {
    {"mha_d32", 2, 2, 32, 64, 64, {32}},
    {"gqa_d64_bias_head_major",
     4,
     2,
     64,
     64,
     128,
     {64},
     false,
     true,
     true,
     "head_major"},
    {"gqa3_d128_qknorm_paged",
     6,
     2,
     128,
     128,
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
     16,
     40,
     {40, true},
     true,
     true,
     true,
     "paged_nhd"},
    {"gqa_d24_partial", 4, 2, 24, 64, 48, {12}, true, true, true, "head_major"},
    {"gqa3_d24", 3, 1, 24, 32, 24, {24}, true, false, true, "paged_nhd"},
    {"d64_partial_interleaved",
     2,
     1,
     64,
     32,
     64,
     {20, true},
     false,
     false,
     false},
    {"d64_odd_rotary", 2, 1, 64, 64, 64, {50}},
    {"d80_no_rope", 2, 1, 80, 16, 80, {0}, false, true, false, "paged_nhd"},
    {"d16_eight_heads", 16, 8, 16, 64, 128, {16}, true, false},
    {"d256_qknorm", 2, 1, 256, 64, 256, {128}, true, false, true, "head_major"},
};

INSTANTIATE_TEST_SUITE_P(Types, QKVEpilogueTest,
                         testing::Combine(testing::Values(Element::BF16,
                                                          Element::F16),
                                          testing::ValuesIn(kCases)),
                         [](const auto &info) {
                           return dtype(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param).name;
                         });

} // namespace
