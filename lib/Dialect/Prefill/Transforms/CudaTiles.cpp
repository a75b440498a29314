//===- CudaTiles.cpp - the tiles of a CUDA chip ---------------------------===//
#include "TargetTiles.h"
#include "prefill/Codegen/CUDA/GemmTileTable.h"
#include "prefill/Codegen/CUDA/TileScheduler.h"
#include "prefill/Codegen/Common/PackedWeights.h"
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include <array>
#include <map>

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// Numbers of a chunk of 16 bytes, which global memory is read and written in.
constexpr int64_t kChunk = 8;
/// Rows of a rowwise op's block: one for each of its warps.
constexpr int64_t kRowwiseBlockM = 4;
/// Rows of logits that tiles are chosen for: those of a small batch.
constexpr int64_t kLogitRows[] = {1, 16};

class CudaTiles : public TargetTiles {
public:
  CudaTiles(const CudaChip &chip, const CudaSchedule &schedule,
            ArrayRef<CudaSchedule> all, const CudaTuning &tuning, bool plain)
      : chip(chip), schedule(schedule), all(all), tuning(tuning), plain(plain) {
  }

  StringRef name() const override { return "cuda"; }

  LogicalResult refuse(Operation *op) const override {
    if (auto attention = dyn_cast<AttentionOp>(op);
        attention && attention.getSoftcap())
      return op->emitOpError("has softcap = ")
             << attention.getSoftcap()->convertToDouble()
             << "; target cuda has no kernel for it";
    if (auto attention = dyn_cast<AttentionOp>(op);
        attention && attention.getSelectedRows())
      return op->emitOpError("has selected_rows; target cuda has no kernel for "
                             "it (leave out prefill-hoist-row-selection)");
    // Others, such as launches and returns, only pass the cache on.
    if (auto append = dyn_cast<KVAppendOp>(op))
      return refuseCache(op, append.getCache().getType());
    if (auto attention = dyn_cast<AttentionOp>(op))
      return refuseCache(op, attention.getCache().getType());
    if (!isa<LinearOp, GemmOp, LMHeadOp>(op))
      return success();
    auto input = cast<RankedTensorType>(op->getOperand(0).getType());
    Type element = input.getElementType();
    if (element.isSignlessInteger(8))
      return op->emitOpError("has an i8 weight; target cuda has no kernel for "
                             "it (leave out --weights=int8)");
    if (!element.isF16() && !element.isBF16())
      return op->emitOpError("has element type ")
             << element
             << "; target cuda has kernels for bf16 and f16 (pass "
                "--dtype=bf16)";
    if (input.getDimSize(1) % kChunk != 0)
      return op->emitOpError("has K = ")
             << input.getDimSize(1) << "; target cuda needs a multiple of "
             << kChunk;
    return success();
  }

  FailureOr<OpTiles> gemm(GemmOp op,
                          const ColumnDemands &demands) const override {
    GemmColumns columns{demands.parts, demands.unit, demands.granularity};
    int64_t k = cast<ShapedType>(op.getInput().getType()).getDimSize(1);
    // Logits are asked for one row of each sequence.
    ArrayRef<int64_t> counts = schedule.rows;
    if (demands.domain == RowDomain::Logits)
      counts = kLogitRows;
    FailureOr<GemmTileLimits> limits = tunedGemm(op, columns, counts);
    if (failed(limits))
      return failure();
    if (leavesRowSums(op) && !limits->blockN) {
      limits->blockN = commonGemmWidth(chip, all, k, columns,
                                       {limits->blockM, 0, limits->widest});
      limits->widest = 0;
    }
    std::optional<GemmTile> tile =
        plain ? smallestGemmTile(chip, columns)
              : selectGemmTile(chip, counts, k, columns, *limits);
    if (!tile && limits->blockM)
      return op->emitOpError("is given a height of ")
             << limits->blockM << ", expected one of " << gemmBlockHeights();
    if (!tile)
      return noTileWidth(op, demands, name());
    if (!plain)
      op->setAttr(kGroupMAttr, OpBuilder(op).getI64IntegerAttr(
                                   selectGroupRows(chip, *tile)));
    return OpTiles{tile->blockM, tile->blockN};
  }

  FailureOr<OpTiles> rowwise(RowwiseOp op,
                             const ColumnDemands &demands) const override {
    int64_t width = selectRowwiseWidth(demands.columns, demands.unit);
    if (width == 0)
      return noTileWidth(op, demands, name());
    return OpTiles{plain ? 1 : kRowwiseBlockM, width};
  }

  FailureOr<OpTiles> attention(AttentionOp op) const override {
    KVCacheType cache = op.getCache().getType();
    AttentionHeads heads = attentionHeads(op);
    CudaAttentionTile given = tunedAttention(cache, heads);
    bool demanded = plain || given.blockQ || given.blockKv;
    if (!plain && !given.blockKv)
      given.blockKv = commonKeys(heads);
    llvm::Expected<CudaAttentionTile> tile =
        cudaAttentionTile(chip, heads, schedule.attentionCalls(), plain, given);
    if (!tile)
      return op.emitOpError("has no tile: ")
             << llvm::toString(tile.takeError());
    if (demanded)
      op->setAttr(kTileGivenAttr, UnitAttr::get(op.getContext()));
    // The tile's columns are the query heads of a KV head.
    return OpTiles{tile->blockQ, heads.group * heads.headDimV, tile->blockKv};
  }

private:
  /// What was measured for the op, at as many rows as tiles are chosen for.
  FailureOr<GemmTileLimits> tunedGemm(GemmOp op, const GemmColumns &columns,
                                      ArrayRef<int64_t> counts) const {
    auto weight = cast<ShapedType>(op.getWeight().getType());
    std::string dtype = elementName(weight.getElementType());
    int64_t n = weight.getDimSize(0), k = weight.getDimSize(1);
    if (plain)
      return GemmTileLimits{};
    bool oneWidth = leavesRowSums(op);
    std::vector<int64_t> widths = tuning.gemmWidths(dtype, n, k);
    if (oneWidth && widths.size() > 1)
      return op->emitOpError("is given tiles of ")
             << widths[0] << " and " << widths[1]
             << " columns, expected one width for all rows: its epilogue has "
                "row sums";
    std::optional<CudaGemmTuning> entry =
        tuning.gemm(dtype, *llvm::max_element(counts), n, k);
    if (!entry && !(oneWidth && !widths.empty()))
      return GemmTileLimits{tuning.gemmBlockM, 0, tuning.gemmBlockN};
    GemmTileLimits limits{entry ? entry->blockM : 0,
                          entry ? entry->blockN : widths.front()};
    int64_t blockM = limits.blockM ? limits.blockM : gemmBlockHeights().front();
    if (std::optional<std::string> reason =
            whyNoGemmTile(chip, columns, blockM, limits.blockN))
      return op->emitOpError("is given a tile that does not fit: ") << *reason;
    return limits;
  }

  /// Partial sums of a row are as many as tiles: their width decides bits.
  static bool leavesRowSums(GemmOp op) {
    return op.getEpilogue()
        .walk([](RowSumsqOp) { return WalkResult::interrupt(); })
        .wasInterrupted();
  }

  /// Of the op of every layer; it takes a while.
  int64_t commonKeys(const AttentionHeads &heads) const {
    int64_t &keys =
        keysOfHeads[{heads.headDimQk, heads.headDimV, heads.group,
                     heads.numKvHeads, heads.causal, heads.slidingWindow}];
    if (!keys)
      keys = commonAttentionKeys(chip, all, heads, tuning.attentionBlockQ);
    return keys;
  }

  CudaAttentionTile tunedAttention(KVCacheType cache,
                                   const AttentionHeads &heads) const {
    std::string dtype = elementName(cache.getDtype());
    CudaAttentionTile given{tuning.attentionBlockQ, tuning.attentionBlockKv};
    if (std::optional<int64_t> keys =
            tuning.attentionKeys(dtype, heads.group, heads.headDimQk))
      given = {0, *keys};
    if (auto entry = tuning.attention(dtype, *llvm::max_element(schedule.rows),
                                      heads.group, heads.headDimQk))
      given.blockQ = entry->blockQ;
    return given;
  }

  static std::string elementName(Type element) {
    std::string name;
    llvm::raw_string_ostream(name) << element;
    return name;
  }

  LogicalResult refuseCache(Operation *op, KVCacheType cache) const {
    if (cache.getLayout() == KVLayout::PagedVNNI)
      return op->emitOpError(
          "has a cache of layout paged_vnni; target cuda has "
          "kernels for contiguous, head_major and paged_nhd "
          "(pass --kv-layout=paged_nhd)");
    for (int64_t headDim : {cache.getHeadDimQk(), cache.getHeadDimV()})
      if (headDim % kChunk != 0 || headDim > kMaxAttentionHeadDim)
        return op->emitOpError("has a cache of head_dim = ")
               << headDim << "; target cuda has kernels for multiples of "
               << kChunk << " up to " << kMaxAttentionHeadDim;
    return success();
  }

  const CudaChip &chip;
  CudaSchedule schedule;
  SmallVector<CudaSchedule> all;
  CudaTuning tuning;
  bool plain;
  mutable std::map<std::array<int64_t, 6>, int64_t> keysOfHeads;
};

} // namespace

AttentionHeads prefill::attentionHeads(AttentionOp op) {
  KVCacheType cache = op.getCache().getType();
  AttentionHeads heads;
  heads.headDimQk = cache.getHeadDimQk();
  heads.headDimV = cache.getHeadDimV();
  heads.group =
      numColumns(op.getQuery()) / cache.getHeadDimQk() / cache.getNumKvHeads();
  heads.numKvHeads = cache.getNumKvHeads();
  heads.causal = op.getCausal();
  heads.slidingWindow = op.getSlidingWindow().value_or(0);
  return heads;
}

std::unique_ptr<TargetTiles>
prefill::createCudaTiles(const CudaChip &chip, const CudaSchedule &schedule,
                         ArrayRef<CudaSchedule> all, const CudaTuning &tuning,
                         bool plain) {
  return std::make_unique<CudaTiles>(chip, schedule, all, tuning, plain);
}
