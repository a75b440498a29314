//===- SpecializeModel.cpp - dtype, KV layout and maximum length
//------------===//
#include "mlir/IR/AttrTypeSubElements.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_SPECIALIZEMODELPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// Compiled length when none is asked for; a longer context costs KV memory
/// that most prompts do not need.
static constexpr int64_t kDefaultMaxSeq = 4096;

namespace {
struct SpecializeModelPass
    : prefill::impl::SpecializeModelPassBase<SpecializeModelPass> {
  using Base::Base;

  FailureOr<FloatType> parseDtype() {
    MLIRContext *context = &getContext();
    if (dtype == "f32")
      return FloatType(Float32Type::get(context));
    if (dtype == "bf16")
      return FloatType(BFloat16Type::get(context));
    if (dtype == "f16")
      return FloatType(Float16Type::get(context));
    return getOperation().emitError("unknown dtype '")
               << dtype << "', expected f32, bf16 or f16",
           failure();
  }

  FailureOr<int64_t> chooseMaxSeq(DictionaryAttr model) {
    int64_t modelMax = 0;
    if (auto attr =
            model ? model.getAs<IntegerAttr>("max_position") : IntegerAttr())
      modelMax = attr.getInt();
    if (maxSeq < 0)
      return getOperation().emitError("maximum length is ")
                 << maxSeq.getValue() << ", expected at least 1",
             failure();
    if (maxSeq == 0)
      return modelMax > 0 ? std::min(modelMax, kDefaultMaxSeq) : kDefaultMaxSeq;
    if (modelMax > 0 && maxSeq > modelMax)
      return getOperation().emitError("maximum length is ")
                 << maxSeq.getValue() << ", expected at most " << modelMax
                 << ", the model's max_position_embeddings",
             failure();
    return int64_t(maxSeq);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<int64_t> chosenMaxSeq =
        chooseMaxSeq(module->getAttrOfType<DictionaryAttr>("prefill.model"));
    std::optional<KVLayout> layout = symbolizeKVLayout(kvLayout);
    if (!layout) {
      module.emitError("unknown KV layout '")
          << kvLayout
          << "', expected contiguous, head_major, paged_nhd or paged_vnni";
      return signalPassFailure();
    }
    if (*layout == KVLayout::PagedNHD && blockSize < 1) {
      module.emitError("KV block size is ")
          << blockSize.getValue() << ", expected at least 1";
      return signalPassFailure();
    }
    if (failed(chosenMaxSeq))
      return signalPassFailure();
    int64_t length = *chosenMaxSeq;
    FloatType newType;
    if (!dtype.empty()) {
      FailureOr<FloatType> parsed = parseDtype();
      if (failed(parsed))
        return signalPassFailure();
      newType = *parsed;
    }

    AttrTypeReplacer replacer;
    replacer.addReplacement([&](KVCacheType type) -> Type {
      int64_t tokens = length;
      if (*layout == KVLayout::PagedNHD)
        tokens = std::min<int64_t>(blockSize, length);
      else if (*layout == KVLayout::PagedVNNI)
        tokens = KVCacheType::kVNNIPageTokens;
      return KVCacheType::get(type.getContext(), *layout, type.getNumKvHeads(),
                              type.getHeadDimQk(), type.getHeadDimV(),
                              newType ? Type(newType) : type.getDtype(),
                              tokens);
    });
    replacer.addReplacement([&](RankedTensorType type) -> Type {
      return newType && isa<FloatType>(type.getElementType())
                 ? type.clone(newType)
                 : type;
    });
    module.walk([&](Operation *op) {
      // Logits are f32 in every dtype.
      if (auto head = dyn_cast<LMHeadOp>(op)) {
        replacer.replaceElementsIn(op, /*replaceAttrs=*/true,
                                   /*replaceLocs=*/false,
                                   /*replaceTypes=*/false);
        return;
      }
      if (!isa<func::FuncOp>(op))
        replacer.replaceElementsIn(op, /*replaceAttrs=*/true,
                                   /*replaceLocs=*/false,
                                   /*replaceTypes=*/true);
    });
    for (auto func : module.getOps<func::FuncOp>()) {
      if (func.isExternal())
        continue;
      for (BlockArgument arg : func.getArguments()) {
        numCaches += isa<KVCacheType>(arg.getType());
        arg.setType(replacer.replace(arg.getType()));
      }
      Operation *terminator = func.front().getTerminator();
      func.setType(FunctionType::get(&getContext(),
                                     TypeRange(func.front().getArgumentTypes()),
                                     terminator->getOperandTypes()));
    }
    Builder builder(&getContext());
    module->setAttr("prefill.max_seq", builder.getI64IntegerAttr(length));
  }
};
} // namespace
