//===- QKVProblem.cpp - a QKV projection with its epilogue ----------------===//
#include "QKVProblem.h"
#include "gtest/gtest.h"

namespace prefill_test {

std::string QKVProblem::text() const {
  std::string element = dtype(type);
  std::string x = rowsType(c.hidden, element);
  std::string w = matrixType(columns(), c.hidden, element);
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
  std::string vec = "tensor<" + std::to_string(columns()) + "x" + element + ">";
  std::string gain =
      "tensor<" + std::to_string(c.headDim) + "x" + element + ">";
  int64_t rotary = std::max<int64_t>(c.rope.rotaryDim, 2);
  std::string table = "tensor<" + std::to_string(positions()) + "x" +
                      std::to_string(rotary) + "xf32>";
  std::string sums = rowsType(kPartials, "f32");

  std::string body, acc0 = "%acc";
  if (c.rowScale) {
    body +=
        "%s = prefill.row_rms_scale %acc, %sumsq {eps = 1.0e-5, channels = " +
        std::to_string(c.hidden) + "} : " + acc + ", " + sums + " -> " + acc +
        "\n";
    acc0 = "%s";
  }
  if (c.bias) {
    body += "%b = prefill.bias_add " + acc0 + ", %bias : " + acc + ", " + vec +
            " -> " + acc + "\n";
    acc0 = "%b";
  }
  body += "%q0, %k0, %v0 = prefill.split " + acc0 + " : " + acc + " -> " + qf +
          ", " + kf + ", " + kf + "\n";
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

void QKVProblem::check(CudaKernel &compiled,
                       const std::vector<uint64_t> &seeds) const {
  int64_t rows = c.rows, realRows = rows - 2;
  DeviceMatrix x = DeviceMatrix(rows, c.hidden, type).randomize(1);
  DeviceMatrix w = DeviceMatrix(columns(), c.hidden, type).randomize(2, 0.4);
  DeviceMatrix sums = DeviceMatrix(rows, kPartials, Element::F32).randomize(3);
  for (double &sum : sums.values)
    sum = float(std::abs(sum) * 10);
  DeviceMatrix bias = DeviceMatrix(1, columns(), type).randomize(4);
  DeviceMatrix queryGain = DeviceMatrix(1, c.headDim, type).randomize(5);
  DeviceMatrix keyGain = DeviceMatrix(1, c.headDim, type).randomize(6);
  DeviceMatrix table = c.rope.rotaryDim
                           ? c.rope.table(positions())
                           : DeviceMatrix(positions(), 2, Element::F32);
  Batch batch = Batch::ofRows(rows);
  for (int64_t r = 0; r < rows; ++r) {
    batch.positions[size_t(r)] =
        int32_t(c.firstPosition + (r * 11 + 3) % slots());
    batch.slots[size_t(r)] = (r * 13 + 5) % slots();
  }
  batch.slots[4] = -1;
  for (int64_t r = realRows; r < rows; ++r) {
    batch.slots[size_t(r)] = -1;
    batch.positions[size_t(r)] = 0;
    x.fillRow(r, kNaN);
    sums.fillRow(r, kNaN);
  }
  DeviceMatrix cache(1, cacheElements(), type);
  DeviceMatrix query(rows, queryColumns(), type);

  LaunchCounters counters;
  for (uint64_t seed : seeds) {
    cache.fill(kNaN);
    query.fill(kNaN);
    Arguments arguments;
    arguments.matrix(x, "x").matrix(w, "w").matrix(sums, "sumsq");
    arguments.matrix(bias, "bias").matrix(queryGain, "q_gain");
    arguments.matrix(keyGain, "k_gain").matrix(table, "table");
    arguments.matrix(cache, "cache", true)
        .inside(cache, valueStart() * cache.elementBytes())
        .word(blockStride())
        .word(tokenStride())
        .word(headStride())
        .batch(batch)
        .matrix(query, "q", true);
    LaunchOptions options;
    options.seed = seed;
    options.checkBlockRaces = true;
    counters = compiled.run(arguments, batch, options);
  }
  query.download();
  cache.download();
  // Every query once, padded rows as well; every key and value once, and no
  // other byte.
  EXPECT_EQ(siteCounters(counters, "epilogue.store").globalBytes,
            uint64_t(rows * queryColumns() * 2));
  for (const char *site : {"kv_append.store_k", "kv_append.store_v"})
    EXPECT_EQ(siteCounters(counters, site).globalBytes,
              uint64_t((realRows - 1) * kvColumns() * 2));

  DeviceMatrix want = multiply(x, w).sum;
  std::vector<bool> written(cache.values.size(), false);
  auto expectNear = [unit = unitOf(type)](double got, double expected) {
    return std::abs(got - expected) <=
           3e-5 + (1e-5 + unit) * std::abs(expected);
  };
  for (int64_t r = 0; r < realRows; ++r) {
    double sum = 0;
    for (int64_t p = 0; p < kPartials; ++p)
      sum += sums.at(r, p);
    double rowScale =
        c.rowScale ? 1 / std::sqrt(sum / double(c.hidden) + kEps) : 1.0;
    for (int64_t n = 0; n < columns(); ++n)
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
    for (int64_t n = 0; n < queryColumns(); ++n)
      ASSERT_PRED2(expectNear, query.at(r, n), want.at(r, n) * kScale)
          << "query row " << r << " column " << n;
    int64_t slot = batch.slots[size_t(r)];
    if (slot < 0)
      continue;
    for (int64_t head = 0; head < c.kvHeads; ++head)
      for (int64_t d = 0; d < c.headDim; ++d) {
        int64_t key = element(slot, head, d);
        int64_t value = valueStart() + key;
        int64_t column = queryColumns() + head * c.headDim + d;
        ASSERT_PRED2(expectNear, cache.at(0, key), want.at(r, column))
            << "key row " << r << " head " << head << " d " << d;
        ASSERT_PRED2(expectNear, cache.at(0, value),
                     want.at(r, column + kvColumns()))
            << "value row " << r << " head " << head << " d " << d;
        written[size_t(key)] = written[size_t(value)] = true;
      }
  }
  // Slots that no row has, and slot -1.
  for (size_t i = 0; i < written.size(); ++i)
    if (!written[i])
      ASSERT_TRUE(std::isnan(cache.values[i])) << "element " << i;
}

} // namespace prefill_test
