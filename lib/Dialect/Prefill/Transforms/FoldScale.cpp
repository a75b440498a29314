//===- FoldScale.cpp - the softmax scale into the query -------------------===//
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_FOLDSCALEPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

namespace {
class FoldScalePass
    : public mlir::prefill::impl::FoldScalePassBase<FoldScalePass> {
  void runOnOperation() override {
    getOperation().walk([&](AttentionOp attention) {
      double scale = attention.getScale().convertToDouble();
      if (attention.getBase2() && scale == 1.0)
        return;
      // tanh needs the natural-base logit, so a factor cannot pass it.
      if (attention.getSoftcap()) {
        noteNotFolded(attention, getArgument(),
                      "softcap needs the logits before the factor log2(e)");
        ++numNotFolded;
        return;
      }
      double factor =
          attention.getBase2() ? scale : scale * llvm::numbers::log2e;
      OpBuilder builder(attention);
      Value query = attention.getQuery();
      auto scaled =
          ScaleOp::create(builder, attention.getLoc(), query.getType(), query,
                          builder.getF64FloatAttr(factor));
      copyLayer(attention, scaled);
      attention.getQueryMutable().assign(scaled.getResult());
      attention.setScaleAttr(builder.getF64FloatAttr(1.0));
      attention.setBase2(true);
      ++numFolded;
    });
  }
};
} // namespace
