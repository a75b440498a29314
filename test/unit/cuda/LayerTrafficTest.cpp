//===- LayerTrafficTest.cpp - what kernels of llama-3-8b's layer move -----===//
// At 1024 tokens, counted without arithmetic on memory that does not exist. K
// is a quarter of the layer's, as all its steps are alike: quick enough for CI.
// scripts/traffic-report counts whole layers.
//===----------------------------------------------------------------------===//
#include "CudaKernel.h"
#include "prefill/Codegen/CUDA/GemmTileTable.h"
#include "gtest/gtest.h"
#include <sys/mman.h>

using namespace prefill_test;
using namespace mlir::prefill;

namespace {

constexpr int64_t kTokens = 1024, kHidden = 1024, kHeadDim = 128, kHeads = 32,
                  kKVHeads = 8;
constexpr int64_t kKVColumns = kKVHeads * kHeadDim;

/// Addresses without memory behind them: pages of zeros when they are read.
class Reserved {
public:
  explicit Reserved(int64_t bytes)
      : bytes(size_t(bytes)),
        begin(mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Reserved() { munmap(begin, bytes); }
  Reserved(const Reserved &) = delete;

  const size_t bytes;
  void *const begin;
};

GemmTile tileOf(int64_t k, const GemmColumns &columns) {
  std::optional<GemmTile> tile =
      selectGemmTile(*lookupCudaChip("sm_80"), kTokens, k, columns);
  EXPECT_TRUE(tile);
  return tile.value_or(GemmTile());
}

LaunchOptions countOnly() {
  LaunchOptions options;
  options.countOnly = true;
  return options;
}

// Rows of x once for each column of tiles, the weight once for each row of
// them, and each key and value exactly once, in whole sectors, without a bank
// conflict.
TEST(LayerTraffic, QKVProjection) {
  int64_t parts[] = {kHeads * kHeadDim, kKVColumns, kKVColumns};
  int64_t n = parts[0] + 2 * kKVColumns;
  GemmTile tile = tileOf(kHidden, {parts, kHeadDim, 0});
  int64_t partials = kHidden / 256;
  std::string x = rowsType(kHidden, "bf16"), q = rowsType(parts[0], "bf16"),
              w = matrixType(n, kHidden, "bf16"), acc = rowsType(n, "f32"),
              qf = rowsType(parts[0], "f32"), kf = rowsType(kKVColumns, "f32"),
              sums = rowsType(partials, "f32"),
              table = matrixType(kTokens, kHeadDim, "f32");
  std::string rope = " {rope = #prefill.rope<theta = 5.0e5, rotary_dim = "
                     "128>, head_dim = 128} : ";
  constexpr int64_t blockSize = 16;
  std::string cache =
      "!prefill.kv_cache<paged_nhd, num_kv_heads = " +
      std::to_string(kKVHeads) +
      ", head_dim_qk = 128, head_dim_v = 128, dtype = bf16, block_size = " +
      std::to_string(blockSize) + ">";
  CudaKernel kernel(
      "func.func private @qkv(%x: " + x + ", %w: " + w + ", %sumsq: " + sums +
      ", %table: " + table + ", %cache: " + cache +
      ", %batch: !prefill.batch) -> (" + q + ", " + cache +
      ") attributes {prefill.kernel} {\n%0, %1 = prefill.gemm %x, %w {" +
      config(tile.blockM, tile.blockN) + "} : " + x + ", " + w + " -> " + q +
      ", " + cache + " epilogue {\n^bb0(%acc: " + acc +
      "):\n%s = prefill.row_rms_scale %acc, %sumsq {eps = 1.0e-5, channels "
      "= 1024} : " +
      acc + ", " + sums + " -> " + acc +
      "\n%q0, %k0, %v0 = prefill.split %s : " + acc + " -> " + qf + ", " + kf +
      ", " + kf + "\n%q1 = prefill.rope %q0, %batch table(%table : " + table +
      ")" + rope + qf + " -> " + qf +
      "\n%k1 = prefill.rope %k0, %batch table(%table : " + table + ")" + rope +
      kf + " -> " + kf +
      "\n%c = prefill.kv_append %k1, %v0 into %cache, %batch : " + kf + ", " +
      kf + " into " + cache + "\nprefill.yield %q1, %c : " + qf + ", " + cache +
      "\n}\nreturn %0, %1 : " + q + ", " + cache + "\n}\n");
  ASSERT_TRUE(kernel.ok());

  Reserved input(kTokens * kHidden * 2), weight(n * kHidden * 2),
      squares(kTokens * partials * 4), angles(kTokens * kHeadDim * 4),
      pages(2 * kTokens * kKVColumns * 2), query(kTokens * parts[0] * 2);
  Batch batch = Batch::ofRows(kTokens);
  // Pages in descending order.
  for (int64_t r = 0; r < kTokens; ++r)
    batch.slots[size_t(r)] = (kTokens / 16 - 1 - r / 16) * 16 + r % 16;
  auto add = [](Arguments &arguments, const Reserved &memory, const char *name,
                bool writable) {
    arguments.reserved(memory.begin, memory.bytes, name, writable);
  };
  Arguments arguments;
  add(arguments, input, "x", false);
  add(arguments, weight, "w", false);
  add(arguments, squares, "sumsq", false);
  add(arguments, angles, "table", false);
  add(arguments, pages, "cache", true);
  arguments
      .word(int64_t(reinterpret_cast<uintptr_t>(pages.begin)) +
            blockSize * kKVColumns * 2)
      .word(2 * blockSize * kKVColumns)
      .word(kKVColumns)
      .word(kHeadDim)
      .batch(batch);
  add(arguments, query, "q", true);
  LaunchCounters counters = kernel.run(arguments, batch, countOnly());

  for (const NamedCounters &site : counters.sites)
    EXPECT_EQ(site.counters.bankConflicts, 0u) << site.name;
  auto expectBulk = [&](const char *name, int64_t bytes, int64_t distinct) {
    SiteCounters site = siteCounters(counters, name);
    EXPECT_EQ(site.globalBytes, uint64_t(bytes)) << name;
    EXPECT_EQ(site.sectors * 32, uint64_t(bytes)) << name;
    EXPECT_EQ(site.distinctSectors * 32, uint64_t(distinct)) << name;
  };
  int64_t tilesM = (kTokens + tile.blockM - 1) / tile.blockM;
  int64_t tilesN = (n + tile.blockN - 1) / tile.blockN;
  int64_t inputBytes = kTokens * kHidden * 2, weightBytes = n * kHidden * 2;
  expectBulk("gemm.load_a", inputBytes * tilesN, inputBytes);
  expectBulk("gemm.load_b", weightBytes * tilesM, weightBytes);
  int64_t keyBytes = kTokens * kKVColumns * 2;
  expectBulk("kv_append.store_k", keyBytes, keyBytes);
  expectBulk("kv_append.store_v", keyBytes, keyBytes);
  int64_t queryBytes = kTokens * parts[0] * 2;
  expectBulk("epilogue.store", queryBytes, queryBytes);
  EXPECT_EQ(counters.matrixInstructions,
            uint64_t(kTokens * n * kHidden / (16 * 8 * 16)));
  // A row's angles: both halves of a head read the same, 16 bytes at a time.
  SiteCounters angle = siteCounters(counters, "epilogue.load_angle");
  EXPECT_LE(angle.sectors * 32,
            2 * uint64_t(kTokens * (parts[0] + kKVColumns) / tile.blockN) *
                kHeadDim * 4);
}

} // namespace
