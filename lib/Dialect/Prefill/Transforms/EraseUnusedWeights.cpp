//===- EraseUnusedWeights.cpp - weights that no kernel reads --------------===//
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Dialect/Prefill/Transforms/WeightSteps.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_ERASEUNUSEDWEIGHTSPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

namespace {
class EraseUnusedWeightsPass
    : public mlir::prefill::impl::EraseUnusedWeightsPassBase<
          EraseUnusedWeightsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal())
        eraseDeadGetWeights(function);

    // Live: read by a get_weight, or an input of a live step.
    SymbolTable symbols(module);
    llvm::DenseSet<Operation *> live;
    SmallVector<WeightOp> worklist;
    auto markLive = [&](FlatSymbolRefAttr symbol) {
      auto weight = symbols.lookup<WeightOp>(symbol.getAttr());
      if (weight && live.insert(weight).second)
        worklist.push_back(weight);
    };
    module.walk([&](GetWeightOp use) { markLive(use.getNameAttr()); });
    while (!worklist.empty())
      for (FlatSymbolRefAttr input :
           getStepInputs(worklist.pop_back_val().getSource()))
        markLive(input);

    for (auto weight : llvm::make_early_inc_range(module.getOps<WeightOp>()))
      if (!live.contains(weight)) {
        weight.erase();
        ++numErased;
      }
  }
};
} // namespace
