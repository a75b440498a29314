//===- VerifyModel.cpp - contract of level model --------------------------===//
#include "prefill/Dialect/Prefill/Transforms/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_VERIFYMODELPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// [rows, channels] with a dynamic row count, or a weight without dynamic
/// sizes, of a floating-point type that models have.
static bool isModelTensor(RankedTensorType type) {
  Type element = type.getElementType();
  if (!element.isF32() && !element.isBF16() && !element.isF16())
    return false;
  return type.hasStaticShape() ||
         (type.getRank() == 2 && type.isDynamicDim(0) && !type.isDynamicDim(1));
}

static LogicalResult verifyOp(Operation &op) {
  if (!isa<GetWeightOp, EmbedOp, RMSNormOp, LinearOp, RopeOp, KVAppendOp,
           AttentionOp, GatedActOp, AddOp, ScaleOp, SelectRowsOp, LMHeadOp,
           func::ReturnOp>(op))
    return emitError(op.getLoc()) << op.getName() << " is no op of level model";
  for (Type type : op.getResultTypes())
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      if (!isModelTensor(tensor))
        return emitError(op.getLoc())
               << op.getName() << " has a result of type " << type
               << ", expected f32, bf16 or f16 with no dynamic size but the "
                  "row count";
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

/// The module attribute that says what the model is, and that the layers are as
/// many as the caches.
static LogicalResult verifyDescription(ModuleOp module, func::FuncOp function) {
  auto model = module->getAttrOfType<DictionaryAttr>("prefill.model");
  if (!model)
    return emitError(module.getLoc()) << "the module has no prefill.model";
  if (!model.getAs<StringAttr>("model_type"))
    return emitError(module.getLoc())
           << "prefill.model has no string model_type";
  if (!model.getAs<BoolAttr>("tied_embeddings"))
    return emitError(module.getLoc())
           << "prefill.model has no bool tied_embeddings";
  for (StringRef key : {"vocab_size", "hidden_size", "num_layers",
                        "num_q_heads", "max_position", "sliding_window"})
    if (!model.getAs<IntegerAttr>(key))
      return emitError(module.getLoc())
             << "prefill.model has no integer " << key;
  int64_t layers = model.getAs<IntegerAttr>("num_layers").getInt();
  int64_t caches = function.getNumArguments() - 1;
  if (layers != caches)
    return emitError(module.getLoc())
           << "prefill.model has num_layers " << layers << ", but function @"
           << kEntryName << " has " << caches << " caches";
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
    if (failed(verifySignature(function)) ||
        failed(verifyDescription(module, function)))
      return signalPassFailure();
    for (Operation &op : function.getBody().front()) {
      if (failed(verifyOp(op)))
        return signalPassFailure();
      ++numOps;
    }
    markAllAnalysesPreserved();
  }
};
} // namespace
