//===- VerifyFused.cpp - contract of level fused --------------------------===//
#include "mlir/IR/TypeUtilities.h"
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_VERIFYFUSEDPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// The pass that folds `op`, or nothing if none does.
static StringRef foldingPass(Operation &op) {
  return TypeSwitch<Operation &, StringRef>(op)
      .Case<KVAppendOp, RopeOp, ScaleOp>(
          [](auto) { return "prefill-fold-kv-append-into-epilogue"; })
      .Case<AddOp, RowSumsqOp>(
          [](auto) { return "prefill-fold-residual-into-epilogue"; })
      .Case<GatedActOp>(
          [](auto) { return "prefill-fold-activation-into-epilogue"; })
      .Case<RMSNormOp>([](RMSNormOp norm) {
        return norm.getHeadDim() ? "prefill-fold-kv-append-into-epilogue"
                                 : "prefill-fold-norm";
      })
      .Default([](Operation &) { return ""; });
}

static bool isFoldable(Operation &op) { return !foldingPass(op).empty(); }

/// What may stand in the region of a gemm or rowwise.
static bool isEpilogueNode(Operation &op) {
  return isFoldable(op) ||
         isa<SplitOp, DeinterleaveOp, BiasAddOp, RowRMSScaleOp, EmbedOp,
             SelectRowsOp, QuantizeRowsOp, DequantizeOp, YieldOp>(op);
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

  /// Once weights are quantized, those that are not say why.
  LogicalResult verifyProjection(Operation &op) {
    constexpr StringLiteral pass = "prefill-quantize-weights";
    if (hasRunGraphPass(getOperation(), pass) &&
        !getElementTypeOrSelf(op.getOperand(0)).isSignlessInteger(8) &&
        !op.hasAttr(kNotFoldedAttr))
      return emitError(op.getLoc())
             << op.getName() << " multiplies "
             << getElementTypeOrSelf(op.getOperand(0)) << " after " << pass
             << " without a reason in prefill.not_folded";
    return success();
  }

  LogicalResult verifyOp(Operation &op) {
    if (isa<GemmOp, LinearOp>(op) && failed(verifyProjection(op)))
      return failure();
    if (isa<GemmOp, RowwiseOp>(op))
      return verifyEpilogue(op);
    if (isFoldable(op)) {
      ++numStandalone;
      if (hasRunGraphPass(getOperation(), foldingPass(op)) &&
          !op.hasAttr(kNotFoldedAttr))
        return emitError(op.getLoc())
               << op.getName() << " stands alone after " << foldingPass(op)
               << " without a reason in prefill.not_folded";
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
