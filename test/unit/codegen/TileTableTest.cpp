//===- TileTableTest.cpp - widths of tiles --------------------------------===//
#include "prefill/Codegen/CPU/TileTable.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "gtest/gtest.h"

using namespace mlir::prefill;

static ColumnTiling select(llvm::ArrayRef<int64_t> parts, int64_t unit = 0,
                           int64_t granularity = 0) {
  return selectColumnTiling(cpuTileSizes(), parts, unit, granularity);
}

TEST(TileTable, WidestTileThatDivides) {
  EXPECT_EQ(select({4096}).blockN, 128);
  EXPECT_EQ(select({192}).blockN, 96);
  EXPECT_EQ(select({320}).blockN, 64);
  // 131 columns are five panels.
  EXPECT_EQ(select({131}).blockN, 32);
  EXPECT_EQ(select({80}).blockN, 96);
  EXPECT_EQ(select({4096}).groupN, 4096);
}

// A tile of f32 sums and the rows of a pass fit the cache that they are made
// for.
TEST(TileTable, SizesFollowTheCaches) {
  for (int64_t l1 : {8, 32, 48, 64, 128})
    for (int64_t l2 : {256, 512, 1024, 2048, 4096}) {
      CpuCaches caches{l1 << 10, l2 << 10, int64_t(32) << 20};
      CpuTileSizes sizes = cpuTileSizes(caches);
      EXPECT_EQ(sizes.gemmBlockM % 8, 0);
      EXPECT_GE(sizes.gemmBlockM, 64);
      EXPECT_LE(sizes.gemmBlockM, 256);
      EXPECT_LE(sizes.gemmBlockM * sizes.blockN.front() * 4, caches.l2 / 8);
      EXPECT_LE(sizes.gemmBlockM * sizes.gemmPassBytes, caches.l2);
      // Whole pairs of the widest element.
      EXPECT_EQ(sizes.gemmPassBytes % 8, 0);
      // Whole fours of 8-bit integers.
      EXPECT_EQ(sizes.int8PassK % 4, 0);
      EXPECT_LT(sizes.int8PassK * kPanelN, caches.l1);
    }
  EXPECT_EQ(cpuTileSizes().gemmBlockM, 256);
  EXPECT_EQ(cpuTileSizes().gemmPassBytes, 4096);
  EXPECT_EQ(cpuTileSizes().int8PassK, 512);
  EXPECT_EQ(cpuTileSizes({32 << 10, 512 << 10, 32 << 20}).gemmBlockM, 128);
}

TEST(TileTable, GroupsOfRowsAreWholeChunks) {
  CpuTileSizes sizes = cpuTileSizes();
  // 2 MiB of rows of 4 KiB, of 12 KiB.
  EXPECT_EQ(selectGroupM(sizes, 64, 4096), 512);
  EXPECT_EQ(selectGroupM(sizes, 64, 12288), 128);
  EXPECT_EQ(selectGroupM(sizes, 64, int64_t(1) << 30), 64);
}

TEST(TileTable, TilesHoldPairsOfRuns) {
  EXPECT_EQ(select({384}, 0, 32).blockN, 128);
  EXPECT_EQ(select({192}, 0, 32).blockN, 64);
  EXPECT_EQ(select({192}, 0, 20).blockN, 0);
}

// Whatever the heads, a tile holds whole ones of one part, and packed groups
// are whole tiles.
TEST(TileTable, TilesStraddleNeitherHeadsNorParts) {
  for (int64_t headDim : {16, 24, 40, 64, 72, 80, 96, 128, 192, 256})
    for (int64_t queryHeads : {1, 2, 3, 5, 6, 7, 8, 12, 14, 32})
      for (int64_t kvHeads : {1, 2, 3, 4, 7, 8}) {
        if (queryHeads % kvHeads)
          continue;
        int64_t query = queryHeads * headDim, kv = kvHeads * headDim;
        ColumnTiling tiling = select({query, kv, kv}, headDim);
        ASSERT_GT(tiling.blockN, 0);
        EXPECT_EQ(tiling.blockN % headDim, 0);
        EXPECT_EQ(query % tiling.blockN, 0);
        EXPECT_EQ(kv % tiling.blockN, 0);
        EXPECT_LE(tiling.blockN, std::max<int64_t>(headDim, 128));
        if (tiling.blockN % kPanelN == 0)
          EXPECT_EQ(tiling.groupN, query + 2 * kv);
        else
          EXPECT_EQ(tiling.groupN, tiling.blockN);
      }
}

TEST(TileTable, FillsTilesWithHeads) {
  // Of 1, 2 and 5 heads of 24, five pad least: 120 of 128 columns. Four heads
  // are three panels without any.
  EXPECT_EQ(select({480, 240, 240}, 24).blockN, 120);
  EXPECT_EQ(select({384, 192, 192}, 24).blockN, 96);
  EXPECT_EQ(select({2048, 512, 512}, 64).blockN, 128);
}
