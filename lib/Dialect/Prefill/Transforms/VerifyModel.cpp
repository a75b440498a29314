//===- VerifyModel.cpp - contract of level model --------------------------===//
#include "ModelContract.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_VERIFYMODELPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// A weight without dynamic sizes, or [rows, channels] with a dynamic row count
/// alone: no row count is fixed before a call. Of an element type that models
/// have.
static bool isModelTensor(RankedTensorType type, bool isWeight) {
  Type element = type.getElementType();
  if (!element.isF32() && !element.isBF16() && !element.isF16())
    return false;
  return isWeight ? type.hasStaticShape()
                  : type.getRank() == 2 && type.isDynamicDim(0) &&
                        !type.isDynamicDim(1);
}

static LogicalResult verifyOp(Operation &op) {
  if (!isa<GetWeightOp, EmbedOp, RMSNormOp, LinearOp, RopeOp, KVAppendOp,
           AttentionOp, GatedActOp, AddOp, ScaleOp, SelectRowsOp, LMHeadOp,
           func::ReturnOp>(op))
    return emitError(op.getLoc()) << op.getName() << " is no op of level model";
  bool isWeight = isa<GetWeightOp>(op);
  for (Type type : op.getResultTypes())
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      if (!isModelTensor(tensor, isWeight))
        return emitError(op.getLoc())
               << op.getName() << " has a result of type " << type
               << ", expected f32, bf16 or f16 with "
               << (isWeight ? "no dynamic size"
                            : "no dynamic size but the row count");
  return success();
}

/// (batch, cache...) -> (f32 logits, cache...).
static LogicalResult verifySignature(func::FuncOp function) {
  auto type = function.getFunctionType();
  auto fail = [&](const Twine &what) {
    return emitError(function.getLoc())
           << "function @" << kEntryName << " has type " << type
           << ", expected " << what;
  };
  if (type.getNumInputs() == 0 || !isa<BatchType>(type.getInput(0)))
    return fail("a !prefill.batch as first argument");
  ArrayRef<Type> caches = type.getInputs().drop_front();
  if (!llvm::all_of(caches, [](Type cache) { return isa<KVCacheType>(cache); }))
    return fail("a !prefill.kv_cache for each layer after the batch");
  auto logits = type.getNumResults() == 0
                    ? RankedTensorType()
                    : dyn_cast<RankedTensorType>(type.getResult(0));
  if (!logits || logits.getRank() != 2 || !logits.isDynamicDim(0) ||
      logits.isDynamicDim(1) || !logits.getElementType().isF32())
    return fail("f32 logits as first result");
  if (type.getResults().drop_front() != caches)
    return fail("the caches as further results");
  return success();
}

namespace {
class VerifyModelPass
    : public mlir::prefill::impl::VerifyModelPassBase<VerifyModelPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto function = module.lookupSymbol<func::FuncOp>(kEntryName);
    if (!function || function.isExternal()) {
      emitError(module.getLoc())
          << "the module has no function @" << kEntryName;
      return signalPassFailure();
    }
    if (failed(verifySignature(function)))
      return signalPassFailure();
    if (!function.getBody().hasOneBlock()) {
      emitError(function.getLoc())
          << "function @" << kEntryName << " has branches, expected one block";
      return signalPassFailure();
    }
    for (Operation &op : function.getBody().front()) {
      if (failed(verifyOp(op)))
        return signalPassFailure();
      ++numOps;
    }
    if (failed(verifyModelDescription(module, function)) ||
        failed(verifyModelDataflow(function)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
