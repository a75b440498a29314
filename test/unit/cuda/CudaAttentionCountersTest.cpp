// What attention kernels of target cuda ask of the memory, by the emulator's
// counters.
#include "CudaAttention.h"
#include "prefill/Analysis/AttentionBlockRange.h"
#include "prefill/Codegen/CUDA/AttentionTileTable.h"
#include "gtest/gtest.h"

using namespace prefill_test;
using namespace mlir::prefill;

namespace {

struct Expected {
  int64_t visited = 0;  // KV blocks, over all tiles and KV heads
  int64_t keysRead = 0; // keys of those blocks that exist
};

/// The closed formula: KV blocks of every tile, and of the last of them the
/// keys that some row sees.
Expected expectedVisits(const AttentionProblem &p,
                        const std::vector<Sequence> &sequences) {
  Expected expected;
  AttentionShape shape{p.causal, p.window, p.blockKv};
  for (const Sequence &s : sequences) {
    SequenceLengths<int64_t> lengths{s.seqlenQ, s.seqlenKv};
    expected.visited +=
        countVisitedTiles(shape, lengths, p.blockQ).total() * p.kvHeads;
    for (int64_t row = 0; row < s.seqlenQ; row += p.blockQ) {
      int64_t end = std::min(row + p.blockQ, s.seqlenQ);
      KVBlockRange<int64_t> range =
          attentionBlockRange(shape, lengths, row, end);
      int64_t lastKey =
          visibleKeys(IntegerArithmetic(), shape, lengths, end - 1).end;
      expected.keysRead +=
          std::max<int64_t>(0, lastKey - range.begin * p.blockKv) * p.kvHeads;
    }
  }
  return expected;
}

void expectCounters(const AttentionProblem &p,
                    const std::vector<Sequence> &sequences,
                    const LaunchOptions &options = {}) {
  SCOPED_TRACE(p.describe());
  CudaAttention attention(p);
  ASSERT_TRUE(attention.ok());
  LaunchCounters counters;
  counters = attention.run(sequences, 0, options).counters;
  auto site = [&](const char *name, SiteKind kind) {
    const SiteCounters *found = counters.site(name, kind);
    EXPECT_TRUE(found) << name;
    return found ? *found : SiteCounters();
  };
  Expected expected = expectedVisits(p, sequences);
  int64_t depth = (p.headDimQk + 15) / 16 * 16;
  int64_t columns = (p.headDimV + 15) / 16 * 16;

  // Each visited block's tile is copied once, 8 elements a thread, and no other
  // block is.
  SiteCounters k = site("attention.load_k", SiteKind::asyncCopy);
  SiteCounters v = site("attention.load_v", SiteKind::asyncCopy);
  EXPECT_EQ(k.threads, uint64_t(expected.visited * p.blockKv * depth / 8));
  EXPECT_EQ(v.threads, uint64_t(expected.visited * p.blockKv * columns / 8));
  EXPECT_EQ(k.globalBytes, uint64_t(expected.keysRead * p.headDimQk * 2));
  EXPECT_EQ(v.globalBytes, uint64_t(expected.keysRead * p.headDimV * 2));

  // Bulk accesses move whole sectors: query once, output once.
  int64_t rows = 0;
  for (const Sequence &s : sequences)
    rows += s.seqlenQ;
  SiteCounters q = site("attention.load_q", SiteKind::asyncCopy);
  SiteCounters o = site("attention.store", SiteKind::store);
  EXPECT_EQ(q.globalBytes, uint64_t(rows * p.heads() * p.headDimQk * 2));
  EXPECT_EQ(o.globalBytes, uint64_t(rows * p.heads() * p.headDimV * 2));
  if (p.headDimQk % 16 == 0)
    for (const SiteCounters &bulk : {k, v, q, o})
      EXPECT_EQ(bulk.sectors * 32, bulk.globalBytes);
  EXPECT_EQ(q.distinctSectors * 32, q.globalBytes);
  EXPECT_EQ(o.distinctSectors * 32, o.globalBytes);

  // No bank conflict anywhere.
  for (const NamedCounters &named : counters.sites)
    EXPECT_EQ(named.counters.bankConflicts, 0u) << named.name;
  EXPECT_EQ(counters.bankConflicts, 0u);
}

AttentionProblem problemOf(int64_t headDim, int64_t group, int64_t blockQ,
                           int64_t blockKv) {
  AttentionProblem p;
  p.kvHeads = 2;
  p.group = group;
  p.headDimQk = p.headDimV = headDim;
  p.blockQ = blockQ;
  p.blockKv = blockKv;
  return p;
}

TEST(CudaAttentionCounters, BlocksSectorsAndBanks) {
  std::vector<Sequence> batch{{100, 100}, {33, 97, 2}, {1, 70, 3}};
  for (int64_t headDim : {16, 24, 48, 64, 80, 96, 128}) {
    AttentionProblem p = problemOf(headDim, 2, 16, 32);
    // 24 columns: with eight heads a token's row is whole sectors.
    if (headDim == 24)
      p.kvHeads = 4;
    expectCounters(p, batch);
    p.setLayout("paged_nhd");
    p.window = 40;
    expectCounters(p, batch);
  }
}

TEST(CudaAttentionCounters, OtherTiles) {
  std::vector<Sequence> batch{{150, 150}, {33, 97, 2}};
  expectCounters(problemOf(64, 4, 32, 64), batch);
  expectCounters(problemOf(64, 1, 16, 128), batch);
  expectCounters(problemOf(128, 4, 32, 32), batch);
  AttentionProblem p = problemOf(64, 7, 9, 64);
  p.causal = false;
  expectCounters(p, batch);
}

// 1024 tokens, head_dim 128, four query heads a KV head: counted only.
TEST(CudaAttentionCounters, Prompt1024) {
  AttentionProblem p = problemOf(128, 4, 32, 32);
  p.kvHeads = 1;
  p.setLayout("paged_nhd");
  LaunchOptions options;
  options.countOnly = true;
  expectCounters(p, {{1024, 1024}}, options);
}

// The heads of llama-3-8b in the tile that the table gives them.
TEST(CudaAttentionCounters, Llama8BPrompt1024) {
  AttentionProblem p = problemOf(128, 4, 1, 1);
  p.kvHeads = 8;
  p.setLayout("paged_nhd");
  AttentionHeads heads{128, 128, p.group, p.kvHeads};
  llvm::Expected<CudaAttentionTile> tile =
      cudaAttentionTile(*lookupCudaChip("sm_80"), heads, AttentionCall(1024));
  ASSERT_TRUE(bool(tile));
  p.blockQ = tile->blockQ;
  p.blockKv = tile->blockKv;
  LaunchOptions options;
  options.countOnly = true;
  expectCounters(p, {{1024, 1024}}, options);
}

// With a window the visited blocks grow with the length, not its square.
TEST(CudaAttentionCounters, WindowIsInTheLoopBounds) {
  AttentionProblem p = problemOf(32, 2, 16, 32);
  p.kvHeads = 1;
  p.window = 64;
  LaunchOptions options;
  options.countOnly = true;
  auto requests = [&](int64_t length) {
    LaunchCounters counters =
        CudaAttention(p).run({{length, length}}, 0, options).counters;
    const SiteCounters *site =
        counters.site("attention.load_k", SiteKind::asyncCopy);
    EXPECT_TRUE(site);
    return site ? site->requests : 0;
  };
  uint64_t growth = requests(512) - requests(256);
  EXPECT_EQ(requests(1024) - requests(512), 2 * growth);
}

} // namespace
