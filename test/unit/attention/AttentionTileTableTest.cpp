#include "prefill/Codegen/CPU/AttentionTileTable.h"
#include "mlir/IR/MLIRContext.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

AttentionTile tileOf(int64_t headDim, int64_t group, bool bf16,
                     const CpuCaches &caches = {}, bool plain = false) {
  static MLIRContext context;
  context.loadDialect<PrefillDialect>();
  Type dtype = bf16 ? Type(BFloat16Type::get(&context))
                    : Type(Float32Type::get(&context));
  auto cache = KVCacheType::get(&context, KVLayout::Contiguous, 8, headDim,
                                headDim, dtype, 4096);
  return attentionTile(cache, group, caches, plain);
}

CpuCaches withL2(int64_t kib) {
  CpuCaches caches;
  caches.l2 = kib << 10;
  return caches;
}

TEST(AttentionTileTable, FitsHalfOfTheSecondLevelCache) {
  for (int64_t l2 : {256, 512, 1024, 1280, 2048, 4096})
    for (int64_t headDim : {16, 64, 80, 128, 256})
      for (int64_t group : {1, 3, 4, 8, 32})
        for (bool bf16 : {false, true}) {
          AttentionTile tile = tileOf(headDim, group, bf16, withL2(l2));
          EXPECT_GE(tile.blockQ, 8);
          EXPECT_GE(tile.blockKv, kPanelN);
          EXPECT_EQ(tile.blockKv % kPanelN, 0);
          int64_t element = bf16 ? 2 : 4;
          int64_t columns = llvm::alignTo(headDim, kPanelN);
          int64_t bytes =
              tile.blockQ * group * (headDim * element + columns * 4) +
              tile.blockKv * (headDim + columns) * element;
          // The smallest tile may be larger: there is nothing below it.
          if (tile.blockQ > 8 || tile.blockKv > kPanelN) {
            EXPECT_LE(bytes, (l2 << 10) / 2)
                << "L2 of " << l2 << " KiB, head_dim " << headDim << " group "
                << group;
          }
          // A larger cache takes no smaller tile.
          AttentionTile next = tileOf(headDim, group, bf16, withL2(2 * l2));
          EXPECT_GE(next.blockQ, tile.blockQ);
          EXPECT_GE(next.blockQ * next.blockKv, tile.blockQ * tile.blockKv);
        }
}

// Four query heads a KV head, bf16, as llama-3-8b has them.
TEST(AttentionTileTable, FollowsTheSecondLevelCache) {
  auto at = [](int64_t headDim, int64_t l2) {
    AttentionTile tile = tileOf(headDim, 4, true, withL2(l2));
    return std::pair(tile.blockQ, tile.blockKv);
  };
  using Tile = std::pair<int64_t, int64_t>;
  EXPECT_EQ(at(128, 256), Tile(16, 128));
  EXPECT_EQ(at(128, 512), Tile(32, 256));
  EXPECT_EQ(at(128, 1024), Tile(64, 256));
  EXPECT_EQ(at(256, 1024), Tile(32, 256));
  EXPECT_EQ(at(256, 2048), Tile(64, 256));
  // The defaults are those of a cache of 1 MiB; beyond its table a tile of
  // attention does not grow.
  AttentionTile byDefault = tileOf(128, 4, true);
  EXPECT_EQ(Tile(byDefault.blockQ, byDefault.blockKv), at(128, 1024));
  EXPECT_EQ(at(128, 4096), Tile(64, 256));
}

TEST(AttentionTileTable, RowsOfAWorkgroupDoNotGrowWithTheGroup) {
  EXPECT_EQ(tileOf(64, 1, true).blockQ, 128);
  EXPECT_EQ(tileOf(64, 4, true).blockQ, 64);
  EXPECT_EQ(tileOf(64, 8, true).blockQ, 32);
}

TEST(AttentionTileTable, PlainIsTheSmallest) {
  AttentionTile tile = tileOf(64, 4, true, {}, /*plain=*/true);
  EXPECT_EQ(tile.blockQ, 8);
  EXPECT_EQ(tile.blockKv, kPanelN);
}

} // namespace
