//===- CpuTiles.cpp - the tiles of target cpu -----------------------------===//
#include "TargetTiles.h"
#include "prefill/Codegen/CPU/AttentionTileTable.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/CPU/TileTable.h"
#include "prefill/Codegen/Common/PackedWeights.h"
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

class CpuTiles : public TargetTiles {
public:
  CpuTiles(const CpuCaches &caches, const CpuTuning &tuning, bool plain)
      : caches(caches), sizes(cpuTileSizes(caches, plain)), tuning(tuning),
        plain(plain) {
    if (tuning.gemmBlockM)
      sizes.gemmBlockM = tuning.gemmBlockM;
    if (int64_t widest = tuning.gemmBlockN) {
      llvm::erase_if(sizes.blockN,
                     [&](int64_t width) { return width >= widest; });
      sizes.blockN.insert(sizes.blockN.begin(), widest);
    }
  }

  StringRef name() const override { return "cpu"; }

  LogicalResult refuse(Operation *op) const override {
    auto attention = dyn_cast<AttentionOp>(op);
    if (!attention)
      return success();
    if (attention.getSoftcap())
      return op->emitOpError("has softcap = ")
             << attention.getSoftcap()->convertToDouble()
             << "; target cpu has no kernel for it";
    if (attention.getNumSplits())
      return op->emitOpError("has num_splits = ")
             << *attention.getNumSplits()
             << "; target cpu has no kernel for it";
    KVCacheType cache = attention.getCache().getType();
    if (cache.getLayout() == KVLayout::PagedVNNI && cache.getDtype().isF16())
      return op->emitOpError("has a cache of dtype f16 in layout paged_vnni; "
                             "target cpu has such pages of f32 and bf16 (pass "
                             "--kv-layout=paged_nhd)");
    return success();
  }

  FailureOr<OpTiles> gemm(GemmOp op,
                          const ColumnDemands &demands) const override {
    FailureOr<ColumnTiling> tiling = columnTiling(op, demands);
    if (failed(tiling))
      return failure();
    configurePasses(op);
    return OpTiles{sizes.gemmBlockM, tiling->blockN, 0, kPanelN};
  }

  FailureOr<OpTiles> rowwise(RowwiseOp op,
                             const ColumnDemands &demands) const override {
    FailureOr<ColumnTiling> tiling = columnTiling(op, demands);
    if (failed(tiling))
      return failure();
    return OpTiles{sizes.rowwiseBlockM, tiling->blockN, 0, kPanelN};
  }

  FailureOr<OpTiles> attention(AttentionOp op) const override {
    KVCacheType cache = op.getCache().getType();
    int64_t group = numColumns(op.getQuery()) / cache.getHeadDimQk() /
                    cache.getNumKvHeads();
    AttentionTile tile = attentionTile(cache, group, caches, plain);
    if (tuning.attentionBlockQ)
      tile.blockQ = tuning.attentionBlockQ;
    if (tuning.attentionBlockKv)
      tile.blockKv = tuning.attentionBlockKv;
    // The tile's columns are the query heads of a KV head.
    return OpTiles{tile.blockQ, group * cache.getHeadDimV(), tile.blockKv,
                   kPanelN};
  }

private:
  FailureOr<ColumnTiling> columnTiling(Operation *op,
                                       const ColumnDemands &demands) const {
    ColumnTiling tiling = selectColumnTiling(sizes, demands.parts, demands.unit,
                                             demands.granularity);
    if (tiling.blockN == 0)
      return noTileWidth(op, demands, name());
    if (isa<GemmOp>(op) && tiling.groupN != demands.columns)
      op->setAttr(kGroupNAttr, OpBuilder(op).getI64IntegerAttr(tiling.groupN));
    return tiling;
  }

  /// How a gemm passes over K and over the rows.
  void configurePasses(GemmOp gemm) const {
    auto input = cast<RankedTensorType>(gemm.getInput().getType());
    int64_t k = input.getDimSize(1);
    int64_t elementBytes = input.getElementType().getIntOrFloatBitWidth() / 8;
    if (plain)
      return;
    // Also where all of K is less: a kernel that converts its rows to f32 makes
    // shorter passes.
    OpBuilder builder(gemm);
    int64_t passK = sizes.gemmPassBytes / elementBytes;
    if (input.getElementType().isSignlessInteger(8))
      passK = std::min(passK, sizes.int8PassK);
    gemm->setAttr(kBlockKAttr, builder.getI64IntegerAttr(passK));
    gemm->setAttr(kGroupMAttr, builder.getI64IntegerAttr(selectGroupM(
                                   sizes, sizes.gemmBlockM, k * elementBytes)));
  }

  CpuCaches caches;
  CpuTileSizes sizes;
  CpuTuning tuning;
  bool plain;
};

} // namespace

std::unique_ptr<TargetTiles> prefill::createCpuTiles(const CpuCaches &caches,
                                                     const CpuTuning &tuning,
                                                     bool plain) {
  return std::make_unique<CpuTiles>(caches, tuning, plain);
}
