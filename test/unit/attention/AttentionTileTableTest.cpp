#include "prefill/Codegen/CPU/AttentionTileTable.h"
#include "mlir/IR/MLIRContext.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

AttentionTile tileOf(int64_t headDim, int64_t group, bool bf16,
                     bool plain = false) {
  static MLIRContext context;
  context.loadDialect<PrefillDialect>();
  Type dtype = bf16 ? Type(BFloat16Type::get(&context))
                    : Type(Float32Type::get(&context));
  auto cache = KVCacheType::get(&context, KVLayout::Contiguous, 8, headDim,
                                headDim, dtype, 4096);
  return attentionTile(cache, group, plain);
}

TEST(AttentionTileTable, FitsHalfOfTheSecondLevelCache) {
  for (int64_t headDim : {16, 64, 80, 128, 256})
    for (int64_t group : {1, 3, 4, 8, 32})
      for (bool bf16 : {false, true}) {
        AttentionTile tile = tileOf(headDim, group, bf16);
        EXPECT_GE(tile.blockQ, 8);
        EXPECT_GE(tile.blockKv, kPanelN);
        EXPECT_EQ(tile.blockKv % kPanelN, 0);
        int64_t element = bf16 ? 2 : 4;
        int64_t columns = llvm::alignTo(headDim, kPanelN);
        int64_t bytes =
            tile.blockQ * group * (headDim * element + columns * 4) +
            tile.blockKv * (headDim + columns) * element;
        // The smallest tile may be larger: there is nothing below it.
        if (tile.blockQ > 8 || tile.blockKv > kPanelN)
          EXPECT_LE(bytes, 512 * 1024)
              << "head_dim " << headDim << " group " << group;
      }
}

TEST(AttentionTileTable, RowsOfAWorkgroupDoNotGrowWithTheGroup) {
  EXPECT_EQ(tileOf(64, 1, true).blockQ, 128);
  EXPECT_EQ(tileOf(64, 4, true).blockQ, 64);
  EXPECT_EQ(tileOf(64, 8, true).blockQ, 32);
}

TEST(AttentionTileTable, PlainIsTheSmallest) {
  AttentionTile tile = tileOf(64, 4, true, /*plain=*/true);
  EXPECT_EQ(tile.blockQ, 8);
  EXPECT_EQ(tile.blockKv, kPanelN);
}

} // namespace
