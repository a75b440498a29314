//===- WeightSteps.cpp - growing the load-time weight program -------------===//
#include "prefill/Dialect/Prefill/Transforms/WeightSteps.h"

using namespace mlir;
using namespace mlir::prefill;

FlatSymbolRefAttr prefill::getWeightSymbol(Value value) {
  if (auto weight = value.getDefiningOp<GetWeightOp>())
    return weight.getNameAttr();
  return {};
}

OpOperand &prefill::weightOperand(Operation *projection) {
  if (auto linear = dyn_cast<LinearOp>(projection))
    return linear.getWeightMutable();
  return cast<GemmOp>(projection).getWeightMutable();
}

SmallVector<FlatSymbolRefAttr> prefill::getStepInputs(Attribute source) {
  SmallVector<FlatSymbolRefAttr> inputs;
  source.walk([&](FlatSymbolRefAttr input) { inputs.push_back(input); });
  return inputs;
}

WeightSteps::WeightSteps(ModuleOp module) : symbols(module) {
  for (auto weight : module.getOps<WeightOp>())
    steps.try_emplace({weight.getSource(), weight.getType()}, weight);
}

GetWeightOp WeightSteps::append(OpBuilder &builder, Location loc,
                                StringRef name, RankedTensorType type,
                                Attribute source) {
  WeightOp &step = steps[{source, type}];
  if (!step) {
    Operation *last = nullptr;
    for (FlatSymbolRefAttr input : getStepInputs(source)) {
      Operation *weight = symbols.lookup(input.getAttr());
      if (weight && (!last || last->isBeforeInBlock(weight)))
        last = weight;
    }
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(cast<ModuleOp>(symbols.getOp()).getBody());
    if (last)
      builder.setInsertionPointAfter(last);
    step = WeightOp::create(builder, loc, name, type, source);
    symbols.insert(step, builder.getInsertionPoint());
  }
  return GetWeightOp::create(builder, loc, type,
                             FlatSymbolRefAttr::get(step.getSymNameAttr()));
}

std::string prefill::replaceNamePart(StringRef symbol, StringRef part,
                                     StringRef whole) {
  size_t at = symbol.rfind(part);
  if (at == StringRef::npos)
    return (symbol + "." + whole).str();
  return (symbol.take_front(at) + whole + symbol.drop_front(at + part.size()))
      .str();
}
