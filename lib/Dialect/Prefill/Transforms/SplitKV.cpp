//===- SplitKV.cpp - the keys of attention in splits ----------------------===//
// Flash-Decoding (Dao et al. 2023): a few query rows against many keys have too
// few tiles for a chip. Each split of the keys is then a tile's own, and a
// second kernel combines what they found.
//===----------------------------------------------------------------------===//
#include "TargetTiles.h"
#include "prefill/Analysis/AttentionSplits.h"
#include "prefill/Codegen/CUDA/GemmTileTable.h"
#include "prefill/Codegen/CUDA/ScheduleTable.h"
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Dialect/Prefill/Transforms/RowBuckets.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_SPLITKVPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

static constexpr llvm::StringLiteral kLoweringConfig = "lowering_config";

/// `attention` over ranges of keys, and the kernel that combines them:
/// its rows are few, each a workgroup's.
static void split(AttentionOp attention, const SplitAttention &chosen) {
  int64_t splits = chosen.splits;
  OpBuilder builder(attention);
  Location loc = attention.getLoc();
  RankedTensorType type = attention.getResult().getType();
  int64_t rows = type.getDimSize(0);
  int64_t heads = numColumns(attention.getQuery()) /
                  attention.getCache().getType().getHeadDimQk();
  auto f32 = [&](int64_t columns) {
    return RankedTensorType::get({rows, splits * columns},
                                 builder.getF32Type());
  };
  auto parts = AttentionOp::create(
      builder, loc, f32(type.getDimSize(1)), f32(heads), attention.getQuery(),
      attention.getCache(), attention.getBatch(), attention.getScaleAttr(),
      attention.getCausalAttr(), attention.getSlidingWindowAttr(),
      attention.getSoftcapAttr(), attention.getBase2Attr(),
      attention.getSelectedRowsAttr(), builder.getI64IntegerAttr(splits));
  parts->setDiscardableAttrs(attention->getDiscardableAttrDictionary());
  LoweringConfigAttr config = getLoweringConfig(attention);
  parts->setAttr(kLoweringConfig, LoweringConfigAttr::get(
                                      builder.getContext(), config.getDomain(),
                                      chosen.tile.blockQ, config.getBlockN(),
                                      chosen.tile.blockKv, config.getPanelN(),
                                      config.getRowBuckets()));

  auto rowwise = RowwiseOp::create(
      builder, loc, attention.getResult().getType(), ValueRange(), ValueRange(),
      LoweringConfigAttr::get(
          builder.getContext(), config.getDomain(), /*blockM=*/1,
          selectRowwiseWidth(type.getDimSize(1), /*unit=*/0), /*blockKv=*/0,
          /*panelN=*/1, config.getRowBuckets()));
  copyLayer(attention, rowwise);
  rowwise->setAttr(kNameAttr,
                   builder.getStringAttr(
                       CombineSplitsOp::getOperationName().split('.').second));
  attention.getResult().replaceAllUsesWith(rowwise.getResult(0));
  attention.erase();
  builder.createBlock(&rowwise.getBody());
  Value combined = CombineSplitsOp::create(builder, loc, type,
                                           parts.getResult(), parts.getLse());
  YieldOp::create(builder, loc, combined);
}

namespace {
class SplitKVPass : public mlir::prefill::impl::SplitKVPassBase<SplitKVPass> {
public:
  using SplitKVPassBase::SplitKVPassBase;

private:
  void runOnOperation() override {
    const CudaChip *chip = nullptr;
    const CudaSchedule *schedule = lookupCudaSchedule(maxRows);
    if (splits == 0) {
      StringRef name = target;
      if (!name.consume_front("cuda:") || !(chip = lookupCudaChip(name))) {
        emitError(getOperation().getLoc())
            << "unknown target '" << target << "' of " << getArgument()
            << "; valid is cuda: with one of " << cudaChipNames();
        return signalPassFailure();
      }
      if (!schedule) {
        emitError(getOperation().getLoc())
            << getArgument() << ": max-rows is " << maxRows.getValue()
            << ", expected the limit of a schedule: " << cudaScheduleLimits();
        return signalPassFailure();
      }
    } else if (splits < 2) {
      emitError(getOperation().getLoc())
          << getArgument() << ": splits is " << splits.getValue()
          << ", expected at least 2";
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (auto attention :
           llvm::make_early_inc_range(function.getOps<AttentionOp>())) {
        FailureOr<SplitAttention> chosen = choose(attention, chip, schedule);
        if (failed(chosen))
          return signalPassFailure();
        attention->removeDiscardableAttr(kTileGivenAttr);
        if (chosen->splits > 1) {
          split(attention, *chosen);
          ++numSplit;
        } else {
          ++numNotSplit;
        }
      }
  }

  FailureOr<SplitAttention> choose(AttentionOp attention, const CudaChip *chip,
                                   const CudaSchedule *schedule) {
    LoweringConfigAttr config = getLoweringConfig(attention);
    if (!config)
      return attention.emitOpError("has no lowering_config (run "
                                   "prefill-select-lowering-strategy)");
    CudaAttentionTile tile{config.getBlockM(), config.getBlockKv()};
    SplitAttention whole{tile, 1};
    if (attention.getSelectedRows() || attention.getNumSplits())
      return whole;
    // A KV block must not lie in two splits. The table has other tiles.
    bool given = splits > 0 || attention->hasAttr(kTileGivenAttr);
    bool fits = tile.blockKv > 0 && kSplitAlignment % tile.blockKv == 0;
    if (splits > 0 && !fits)
      return attention.emitOpError("has no splits: block_kv is ")
             << tile.blockKv << ", expected a divisor of " << kSplitAlignment;
    if (given && !fits)
      return whole;
    if (splits > 0)
      return SplitAttention{tile, splits};
    if (maxRows == 0 || maxRows > kMaxSplitRows)
      return whole;
    llvm::Expected<SplitAttention> chosen =
        splitAttention(*chip, attentionHeads(attention), tile,
                       schedule->attentionCalls(), given);
    if (!chosen)
      return attention.emitOpError("has no splits: ")
             << llvm::toString(chosen.takeError());
    return *chosen;
  }
};
} // namespace
