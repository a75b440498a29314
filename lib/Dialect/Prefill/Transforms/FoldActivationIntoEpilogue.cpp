//===- FoldActivationIntoEpilogue.cpp - gated activation ------------------===//
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_FOLDACTIVATIONINTOEPILOGUEPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// The deinterleave that `value` is a part of, through bias adds.
static DeinterleaveOp traceToDeinterleave(Value value) {
  while (auto bias = value.getDefiningOp<BiasAddOp>())
    value = bias.getInput();
  return value.getDefiningOp<DeinterleaveOp>();
}

static std::optional<std::string> whyNotFoldable(GatedActOp act) {
  auto gemm = act.getGate().getDefiningOp<GemmOp>();
  if (!gemm || act.getUp().getDefiningOp() != gemm)
    return "gate and up are not results of one GEMM";
  auto yield = cast<YieldOp>(gemm.getEpilogue().front().getTerminator());
  auto yielded = [&](Value result) {
    return yield.getOperand(cast<OpResult>(result).getResultNumber());
  };
  DeinterleaveOp gate = traceToDeinterleave(yielded(act.getGate()));
  if (!gate || traceToDeinterleave(yielded(act.getUp())) != gate)
    return "gate and up of one column may lie in different tiles: they are not "
           "interleaved";
  return whyNotAbsorbable(gemm, act);
}

namespace {
class FoldActivationIntoEpiloguePass
    : public mlir::prefill::impl::FoldActivationIntoEpiloguePassBase<
          FoldActivationIntoEpiloguePass> {
  void runOnOperation() override {
    recordGraphPass(getOperation(), getArgument());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      for (auto act :
           llvm::make_early_inc_range(function.getOps<GatedActOp>())) {
        if (std::optional<std::string> reason = whyNotFoldable(act)) {
          noteNotFolded(act, getArgument(), *reason);
          ++numNotFolded;
          continue;
        }
        absorb(act.getGate().getDefiningOp(), act);
        ++numFolded;
      }
    }
  }
};
} // namespace
