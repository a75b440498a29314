//===- ConvertAttentionToOnline.cpp - attention with an online softmax ----===//
#include "prefill/Dialect/Prefill/Transforms/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_CONVERTATTENTIONTOONLINEPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// Name under which select-lowering-strategy leaves an op's tile sizes.
constexpr StringLiteral kLoweringConfig = "lowering_config";

void convert(AttentionOp op) {
  OpBuilder builder(op);
  KVCacheType cache = op.getCache().getType();
  auto query = cast<RankedTensorType>(op.getQuery().getType());
  int64_t rows = query.getDimSize(0);
  // With splits each has its own state, one behind the other.
  int64_t heads = query.getDimSize(1) / cache.getHeadDimQk() *
                  op.getNumSplits().value_or(1);
  Type f32 = builder.getF32Type();
  auto accumulator =
      RankedTensorType::get({rows, heads * cache.getHeadDimV()}, f32);
  auto statistic = RankedTensorType::get({rows, heads}, f32);
  // The whole form covers blocks of every kind.
  auto mask = BlockMaskAttr::get(op.getContext(), BlockMask::Edge);
  auto online = OnlineAttentionOp::create(
      builder, op.getLoc(), accumulator, statistic, statistic, op.getQuery(),
      op.getCache(), op.getBatch(), /*tile=*/ValueRange(),
      /*carry=*/ValueRange(), mask, op.getScaleAttr(), op.getCausalAttr(),
      op.getSlidingWindowAttr(), op.getSoftcapAttr(), op.getBase2Attr(),
      op.getNumSplitsAttr(),
      op->getAttrOfType<LoweringConfigAttr>(kLoweringConfig));
  Operation *last;
  if (IntegerAttr splits = op.getNumSplitsAttr())
    last = AttentionPartialOp::create(
        builder, op.getLoc(), op.getResultTypes(), online.getAccumulator(),
        online.getRowMax(), online.getRowSum(), op.getBatch(), splits,
        /*tile=*/ValueRange(), /*outs=*/ValueRange());
  else
    last = AttentionNormalizeOp::create(
        builder, op.getLoc(), op.getResult().getType(), online.getAccumulator(),
        online.getRowSum(), op.getBatch(),
        /*tile=*/ValueRange(), /*out=*/Value(), op.getSelectedRowsAttr());
  for (StringRef name : {StringRef(kLayerAttr), StringRef(kNameAttr)})
    if (Attribute attr = op->getAttr(name))
      online->setAttr(name, attr);
  copyLayer(op, last);
  op.replaceAllUsesWith(last);
  op.erase();
}

struct ConvertAttentionToOnline
    : mlir::prefill::impl::ConvertAttentionToOnlinePassBase<
          ConvertAttentionToOnline> {
  void runOnOperation() override {
    SmallVector<AttentionOp> attentions;
    getOperation().walk([&](AttentionOp op) { attentions.push_back(op); });
    for (AttentionOp op : attentions)
      convert(op);
    numConverted += attentions.size();
  }
};

} // namespace
