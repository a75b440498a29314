//===- FuseGateUp.cpp - gate and up projection in one GEMM ----------------===//
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Dialect/Prefill/Transforms/WeightSteps.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_FUSEGATEUPPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// Why gate and up stay apart, or nullopt.
static std::optional<std::string> whyNotFusable(LinearOp gate, LinearOp up) {
  if (!gate || !up)
    return "gate and up do not both come from a linear";
  if (gate == up)
    return "gate and up are one linear";
  if (gate.getInput() != up.getInput())
    return "gate and up read different inputs";
  if (gate->getBlock() != up->getBlock())
    return "gate and up stand in different blocks";
  if (gate.getWeight().getType() != up.getWeight().getType())
    return "gate's and up's weights differ in type";
  for (LinearOp linear : {gate, up}) {
    if (!getWeightSymbol(linear.getWeight()))
      return "a projection's weight is no prefill.get_weight";
    if (linear.getBias() && !getWeightSymbol(linear.getBias()))
      return "a projection's bias is no prefill.get_weight";
  }
  return std::nullopt;
}

namespace {
class FuseGateUpPass
    : public mlir::prefill::impl::FuseGateUpPassBase<FuseGateUpPass> {
public:
  using FuseGateUpPassBase::FuseGateUpPassBase;

private:
  void runOnOperation() override {
    if (granularity < 1) {
      emitError(getOperation().getLoc())
          << getArgument() << ": granularity is " << granularity.getValue()
          << ", expected a positive number of columns";
      return signalPassFailure();
    }
    WeightSteps steps(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      for (auto act :
           llvm::make_early_inc_range(function.getOps<GatedActOp>())) {
        auto gate = act.getGate().getDefiningOp<LinearOp>();
        auto up = act.getUp().getDefiningOp<LinearOp>();
        if (std::optional<std::string> reason = whyNotFusable(gate, up)) {
          noteNotFolded(act, getArgument(), *reason);
          ++numNotFused;
          continue;
        }
        fuse(gate, up, steps);
        ++numFused;
      }
      eraseDeadGetWeights(function);
    }
  }

  void fuse(LinearOp gate, LinearOp up, WeightSteps &steps);
};
} // namespace

void FuseGateUpPass::fuse(LinearOp gate, LinearOp up, WeightSteps &steps) {
  LinearOp first = gate->isBeforeInBlock(up) ? gate : up;
  OpBuilder builder(first);
  MLIRContext *context = builder.getContext();
  Location loc = builder.getFusedLoc({gate.getLoc(), up.getLoc()});
  for (LinearOp linear : {gate, up})
    if (Value bias = linear.getBias())
      if (first->isBeforeInBlock(bias.getDefiningOp()))
        bias.getDefiningOp()->moveBefore(first);

  auto weightType = cast<RankedTensorType>(gate.getWeight().getType());
  FlatSymbolRefAttr gateWeight = getWeightSymbol(gate.getWeight());
  // Each input is padded with zero rows to whole runs.
  int64_t rows =
      2 * llvm::divideCeil(weightType.getDimSize(0), granularity) * granularity;
  Value weight = steps.append(
      builder, loc,
      replaceNamePart(gateWeight.getValue(), "gate_proj", "gate_up_proj"),
      RankedTensorType::get({rows, weightType.getDimSize(1)},
                            weightType.getElementType()),
      InterleaveAttr::get(context, gateWeight, getWeightSymbol(up.getWeight()),
                          granularity));

  GemmOp gemm = createGemm(
      builder, loc, gate.getInput(), weight,
      TypeRange{gate.getType(), up.getType()},
      [&](OpBuilder &b, Value accumulator) {
        auto parts = DeinterleaveOp::create(
            b, loc, withF32Elements(cast<RankedTensorType>(gate.getType())),
            withF32Elements(cast<RankedTensorType>(up.getType())), accumulator,
            b.getI64IntegerAttr(granularity));
        SmallVector<Value> yielded;
        for (auto [part, linear] :
             {std::pair<Value, LinearOp>{parts.getFirst(), gate},
              std::pair<Value, LinearOp>{parts.getSecond(), up}}) {
          Value value = part;
          if (Value bias = linear.getBias())
            value = BiasAddOp::create(b, loc, value.getType(), value, bias);
          yielded.push_back(value);
        }
        return yielded;
      });
  copyLayer(gate, gemm);
  gemm->setAttr(kNameAttr, builder.getStringAttr("gate_up_proj"));
  gate.getResult().replaceAllUsesWith(gemm.getResult(0));
  up.getResult().replaceAllUsesWith(gemm.getResult(1));
  gate.erase();
  up.erase();
}
