//===- VerifyFused.cpp - contract of level fused --------------------------===//
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_VERIFYFUSEDPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// Whether the op should have moved into an epilogue.
static bool isFoldable(Operation &op) {
  return isa<KVAppendOp, RopeOp, GatedActOp, AddOp, ScaleOp, RowSumsqOp,
             RMSNormOp>(op);
}

/// What may stand in the region of a gemm or rowwise.
static bool isEpilogueNode(Operation &op) {
  return isFoldable(op) ||
         isa<SplitOp, DeinterleaveOp, BiasAddOp, RowRMSScaleOp, EmbedOp,
             SelectRowsOp, YieldOp>(op);
}

static LogicalResult verifyEpilogue(Operation &compute) {
  for (Operation &op : compute.getRegion(0).front())
    if (!isEpilogueNode(op))
      return emitError(op.getLoc())
             << op.getName() << " in a region of " << compute.getName()
             << " is no node of an epilogue";
  return success();
}

namespace {
class VerifyFusedPass
    : public mlir::prefill::impl::VerifyFusedPassBase<VerifyFusedPass> {
public:
  using VerifyFusedPassBase::VerifyFusedPassBase;

private:
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      for (Operation &op : function.getBody().front())
        if (failed(verifyOp(op)))
          return signalPassFailure();
    }
    markAllAnalysesPreserved();
  }

  LogicalResult verifyOp(Operation &op) {
    if (isa<GemmOp, RowwiseOp>(op))
      return verifyEpilogue(op);
    if (isFoldable(op)) {
      ++numStandalone;
      if (strict && !op.hasAttr(kNotFoldedAttr))
        return emitError(op.getLoc())
               << op.getName()
               << " stands alone without a reason in prefill.not_folded";
      return success();
    }
    if (isa<GetWeightOp, EmbedOp, LinearOp, AttentionOp, SelectRowsOp,
            LMHeadOp>(op) ||
        op.hasTrait<OpTrait::IsTerminator>())
      return success();
    return emitError(op.getLoc()) << op.getName() << " is no op of level fused";
  }
};
} // namespace
