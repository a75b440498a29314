#include "prefill/Codegen/CUDA/ScheduleTable.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MathExtras.h"
#include "gtest/gtest.h"

using namespace mlir::prefill;

namespace {

AttentionHeads headsOf(int64_t headDim, int64_t group, int64_t numKvHeads = 8,
                       int64_t window = 0) {
  AttentionHeads heads;
  heads.headDimQk = heads.headDimV = headDim;
  heads.group = group;
  heads.numKvHeads = numKvHeads;
  heads.slidingWindow = window;
  return heads;
}

std::string errorOf(const CudaChip &chip, const AttentionHeads &heads,
                    CudaAttentionTile tile) {
  llvm::Expected<AttentionLayout> layout = attentionLayout(chip, heads, tile);
  return layout ? "" : llvm::toString(layout.takeError());
}

// Whatever the table chooses can be launched: on every chip, for every head
// size and group there is a tile.
TEST(CudaAttentionTileTable, EveryChoiceFitsItsChip) {
  for (const CudaChip &chip : cudaChips())
    for (int64_t headDim : {8, 16, 24, 48, 64, 80, 96, 128, 192, 256})
      for (int64_t group : {1, 3, 4, 7, 8, 32, 71, 128})
        for (int64_t seqlen : {1, 128, 2048}) {
          SCOPED_TRACE(chip.name.str() + " head_dim " +
                       std::to_string(headDim) + " group " +
                       std::to_string(group));
          AttentionHeads heads = headsOf(headDim, group);
          llvm::Expected<CudaAttentionTile> tile =
              cudaAttentionTile(chip, heads, AttentionCall(seqlen));
          ASSERT_TRUE(bool(tile)) << llvm::toString(tile.takeError());
          llvm::Expected<AttentionLayout> layout =
              attentionLayout(chip, heads, *tile);
          ASSERT_TRUE(bool(layout)) << llvm::toString(layout.takeError());
          EXPECT_GE(layout->rows(), tile->blockQ * group);
          EXPECT_EQ(tile->blockKv % 16, 0);
          EXPECT_GE(layout->stages, 2);
          EXPECT_LE(layout->sharedBytes(), chip.sharedPerBlock);
          EXPECT_LE(layout->registers, kMaxThreadRegisters);
          EXPECT_GE(layout->blocksPerSM, 1);
          EXPECT_EQ(layout->blocksPerSM,
                    blocksPerSM(chip, layout->threads(), layout->sharedBytes(),
                                layout->registers));
        }
}

// Two fragments a warp where registers allow it: FlashAttention-2's shape.
TEST(CudaAttentionTileTable, WarpsOwnTwoFragments) {
  const CudaChip &chip = *lookupCudaChip("sm_80");
  llvm::Expected<AttentionLayout> layout =
      attentionLayout(chip, headsOf(64, 4), {32, 64});
  ASSERT_TRUE(bool(layout));
  EXPECT_EQ(layout->warps, 4);
  EXPECT_EQ(layout->fragments, 2);
  EXPECT_TRUE(layout->queryInRegisters);
  // Query fragments of head_dim 128 no longer fit beside the sums.
  layout = attentionLayout(chip, headsOf(128, 4), {32, 32});
  ASSERT_TRUE(bool(layout));
  EXPECT_EQ(layout->fragments, 2);
  EXPECT_FALSE(layout->queryInRegisters);
  EXPECT_EQ(layout->queryOffset(), layout->stages * layout->stageBytes());
  // Sums of head_dim 256 fill the registers with 16 rows.
  layout = attentionLayout(chip, headsOf(256, 4), {16, 32});
  ASSERT_TRUE(bool(layout));
  EXPECT_EQ(layout->fragments, 1);
}

// A query row's heads stay together: block_q times the group fills the tile.
TEST(CudaAttentionTileTable, GroupsShareATile) {
  const CudaChip &chip = *lookupCudaChip("sm_80");
  for (int64_t group : {1, 3, 4, 7, 32}) {
    llvm::Expected<CudaAttentionTile> tile =
        cudaAttentionTile(chip, headsOf(64, group), AttentionCall(2048));
    ASSERT_TRUE(bool(tile));
    EXPECT_GT(tile->blockQ * group, 32) << group;
    EXPECT_LE(tile->blockQ * group, 256) << group;
  }
}

TEST(CudaAttentionTileTable, WavesOfTheTiles) {
  const CudaChip &chip = *lookupCudaChip("sm_80");
  // Not causal, 128 keys: every tile visits two blocks of 64.
  AttentionHeads heads = headsOf(64, 1, 1);
  heads.causal = false;
  CudaAttentionTile tile{16, 64};
  llvm::Expected<AttentionLayout> layout = attentionLayout(chip, heads, tile);
  ASSERT_TRUE(bool(layout));
  AttentionWaves waves = attentionWaves(chip, heads, tile, *layout, 128);
  EXPECT_EQ(waves.workgroups, 8);
  EXPECT_EQ(waves.slots, chip.sms * layout->blocksPerSM);
  EXPECT_DOUBLE_EQ(waves.efficiency, 8.0 / double(waves.slots));
  // One slot more than a wave: the second wave is almost empty.
  heads.numKvHeads = waves.slots;
  EXPECT_DOUBLE_EQ(attentionWaves(chip, heads, tile, *layout, 16).efficiency,
                   1.0);
  heads.numKvHeads = waves.slots + 1;
  EXPECT_DOUBLE_EQ(attentionWaves(chip, heads, tile, *layout, 16).efficiency,
                   double(waves.slots + 1) / double(2 * waves.slots));
  // Causal, longest first: the short tiles fill the tail.
  heads = headsOf(64, 1, 32);
  EXPECT_GT(attentionWaves(chip, heads, tile, *layout, 2048).efficiency, 0.9);
}

// A short prompt takes smaller tiles, so that more SMs have one.
TEST(CudaAttentionTileTable, ShortPromptsTakeSmallerTiles) {
  const CudaChip &chip = *lookupCudaChip("sm_80");
  llvm::Expected<CudaAttentionTile> few =
      cudaAttentionTile(chip, headsOf(128, 4), AttentionCall(128));
  llvm::Expected<CudaAttentionTile> many =
      cudaAttentionTile(chip, headsOf(128, 4), AttentionCall(4096));
  ASSERT_TRUE(few && many);
  EXPECT_LT(few->blockQ, many->blockQ);
}

// A decode step of Llama-3-8B has eight tiles: as splits they are most of the
// places that a chip has, and less time by the estimate that chose them.
TEST(CudaAttentionTileTable, SplitsFillTheChip) {
  for (const CudaChip &chip : cudaChips())
    for (int64_t headDim : {64, 128})
      for (const CudaSchedule &schedule : cudaSchedules().take_front(2)) {
        SCOPED_TRACE(chip.name.str() + " head_dim " + std::to_string(headDim) +
                     " up to " + std::to_string(schedule.maxRows));
        AttentionHeads heads = headsOf(headDim, 4);
        llvm::SmallVector<AttentionCall> calls = schedule.attentionCalls();
        CudaAttentionTile whole =
            llvm::cantFail(cudaAttentionTile(chip, heads, calls));
        SplitAttention split =
            llvm::cantFail(splitAttention(chip, heads, whole, calls));
        EXPECT_TRUE(llvm::isPowerOf2_64(split.splits));
        EXPECT_GE(split.splits, 2);
        EXPECT_LE(split.splits, kMaxAttentionSplits);
        EXPECT_EQ(128 % split.tile.blockKv, 0);
        int64_t tiles =
            llvm::divideCeil(calls.front().queries, split.tile.blockQ);
        EXPECT_GE(tiles * heads.numKvHeads * split.splits, chip.sms / 2);
      }
}

// Where the tiles fill the chip there is nothing to gain.
TEST(CudaAttentionTileTable, ManyHeadsStayWhole) {
  const CudaChip &chip = *lookupCudaChip("sm_80");
  AttentionHeads heads = headsOf(128, 1, 16 * chip.sms);
  AttentionCall call(128, 2176);
  CudaAttentionTile whole =
      llvm::cantFail(cudaAttentionTile(chip, heads, call));
  EXPECT_EQ(llvm::cantFail(splitAttention(chip, heads, whole, call)).splits, 1);
}

// A tile that somebody demands stays, and its KV blocks lie in one split each.
TEST(CudaAttentionTileTable, SplitsKeepAGivenTile) {
  const CudaChip &chip = *lookupCudaChip("sm_80");
  AttentionCall call(1, 2048);
  SplitAttention split = llvm::cantFail(
      splitAttention(chip, headsOf(128, 4), {4, 16}, call, /*given=*/true));
  EXPECT_EQ(split.tile.blockQ, 4);
  EXPECT_EQ(split.tile.blockKv, 16);
  EXPECT_GT(split.splits, 1);
  EXPECT_EQ(llvm::cantFail(splitAttention(chip, headsOf(128, 4), {4, 48}, call,
                                          /*given=*/true))
                .splits,
            1);
}

TEST(CudaAttentionTileTable, PlainIsTheSmallest) {
  llvm::Expected<CudaAttentionTile> tile =
      cudaAttentionTile(*lookupCudaChip("sm_80"), headsOf(64, 4),
                        AttentionCall(2048), /*plain=*/true);
  ASSERT_TRUE(bool(tile));
  EXPECT_EQ(tile->blockQ, 4);
  EXPECT_EQ(tile->blockKv, 16);
}

TEST(CudaAttentionTileTable, WhatDoesNotFitIsNamed) {
  const CudaChip &small = *lookupCudaChip("sm_86");
  EXPECT_EQ(errorOf(small, headsOf(256, 1), {128, 32}),
            "attention tile of 128 query rows by 32 keys, 1 query heads a KV "
            "head, head_dim 256/256: 131072 bytes of shared memory, expected "
            "at most 101376 on sm_86");
  EXPECT_NE(errorOf(small, headsOf(256, 1), {64, 256})
                .find("registers, expected at most 255"),
            std::string::npos);
  EXPECT_NE(errorOf(small, headsOf(20, 1), {64, 64})
                .find("multiples of 8 from 8 to 256"),
            std::string::npos);
  EXPECT_NE(errorOf(small, headsOf(64, 1), {0, 64}).find("query row"),
            std::string::npos);
  llvm::Expected<CudaAttentionTile> tile =
      cudaAttentionTile(small, headsOf(64, 300), AttentionCall(2048));
  ASSERT_FALSE(bool(tile));
  EXPECT_EQ(llvm::toString(tile.takeError()),
            "attention has 300 query heads a KV head; target cuda has tiles of "
            "at most 256");
}

} // namespace
