//===- PackWeights.cpp - weights in the microkernel's order ---------------===//
#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/Common/PackedWeights.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Dialect/Prefill/Transforms/WeightSteps.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_PACKWEIGHTSPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

namespace {
class PackWeightsPass
    : public mlir::prefill::impl::PackWeightsPassBase<PackWeightsPass> {
  void runOnOperation() override {
    WeightSteps steps(getOperation());
    WalkResult result = getOperation().walk([&](GemmOp gemm) {
      if (cast<ShapedType>(gemm.getWeight().getType()).getRank() != 2)
        return WalkResult::advance();
      return failed(pack(gemm, steps)) ? WalkResult::interrupt()
                                       : WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

  LogicalResult pack(GemmOp gemm, WeightSteps &steps) {
    FlatSymbolRefAttr symbol = getWeightSymbol(gemm.getWeight());
    if (!symbol)
      return gemm.emitOpError("has a weight that is no prefill.get_weight; "
                              "only weights can be packed");
    auto type = cast<RankedTensorType>(gemm.getWeight().getType());
    int64_t n = type.getDimSize(0), k = type.getDimSize(1);
    int64_t group = n;
    if (auto attr = gemm->getAttrOfType<IntegerAttr>(kGroupNAttr))
      group = attr.getInt();
    if (group < 1 || n % group != 0)
      return gemm.emitOpError("has ") << kGroupNAttr << " = " << group
                                      << ", which doesn't divide N = " << n;
    int64_t pairs = kPack(type.getElementType());
    auto packed = RankedTensorType::get(
        {n / group * int64_t(llvm::divideCeil(group, kPanelN)),
         int64_t(llvm::divideCeil(k, pairs)), kPanelN, pairs},
        type.getElementType());
    OpBuilder builder(gemm);
    Operation *old = gemm.getWeight().getDefiningOp();
    GetWeightOp weight = steps.append(
        builder, gemm.getLoc(), (symbol.getValue() + ".packed").str(), packed,
        PackAttr::get(&getContext(), symbol, kPanelN, pairs, group));
    gemm.getWeightMutable().assign(weight);
    if (old->use_empty())
      old->erase();
    ++numPacked;
    return success();
  }
};
} // namespace
