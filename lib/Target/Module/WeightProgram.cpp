//===- WeightProgram.cpp - weights as the module's load-time program
//--------===//
#include "WeightProgram.h"
#include "prefill/Analysis/RopeFrequencies.h"

namespace fb = ::prefill::module;

namespace mlir::prefill {

FailureOr<fb::DType> dtypeOf(Type type, Location loc) {
  if (type.isF32())
    return fb::DType::f32;
  if (type.isBF16())
    return fb::DType::bf16;
  if (type.isF16())
    return fb::DType::f16;
  if (type.isSignlessInteger(8))
    return fb::DType::i8;
  return emitError(loc, "a module cannot hold elements of type ")
             << type << ", expected f32, bf16, f16 or i8",
         failure();
}

FailureOr<uint32_t> WeightProgram::add(StringRef name, bool resident) {
  if (auto known = indices.find(name); known != indices.end()) {
    weights[known->second]->resident |= resident;
    return known->second;
  }
  auto op = module.lookupSymbol<WeightOp>(name);
  if (!op)
    return module.emitError("weight @") << name << " is not defined", failure();
  auto weight = std::make_unique<fb::WeightT>();
  weight->name = name.str();
  weight->resident = resident;
  RankedTensorType type = op.getTensorType();
  weight->shape.assign(type.getShape().begin(), type.getShape().end());
  FailureOr<fb::DType> dtype = dtypeOf(type.getElementType(), op.getLoc());
  if (failed(dtype) || failed(setSource(op, *weight)))
    return failure();
  weight->dtype = *dtype;
  uint32_t index = weights.size();
  indices[name] = index;
  weights.push_back(std::move(weight));
  return index;
}

LogicalResult WeightProgram::setSource(WeightOp op, fb::WeightT &weight) {
  auto input = [&](FlatSymbolRefAttr ref, uint32_t &index) -> LogicalResult {
    FailureOr<uint32_t> added = add(ref.getValue(), /*resident=*/false);
    if (failed(added))
      return failure();
    index = *added;
    return success();
  };
  return TypeSwitch<Attribute, LogicalResult>(op.getSource())
      .Case([&](CheckpointAttr source) {
        fb::CheckpointSourceT table;
        table.name = source.getName().str();
        weight.source.Set(std::move(table));
        return success();
      })
      .Case([&](ConcatAttr source) -> LogicalResult {
        fb::ConcatSourceT table;
        for (FlatSymbolRefAttr ref : source.getInputs())
          if (failed(input(ref, table.inputs.emplace_back())))
            return failure();
        weight.source.Set(std::move(table));
        return success();
      })
      .Case([&](InterleaveAttr source) -> LogicalResult {
        fb::InterleaveSourceT table;
        table.inputs.resize(2);
        table.granularity = source.getGranularity();
        if (failed(input(source.getFirst(), table.inputs[0])) ||
            failed(input(source.getSecond(), table.inputs[1])))
          return failure();
        weight.source.Set(std::move(table));
        return success();
      })
      .Case([&](ScaleColumnsAttr source) -> LogicalResult {
        fb::ScaleColumnsSourceT table;
        if (failed(input(source.getInput(), table.input)) ||
            failed(input(source.getGain(), table.gain)))
          return failure();
        weight.source.Set(std::move(table));
        return success();
      })
      .Case([&](PackAttr source) -> LogicalResult {
        fb::PackSourceT table;
        table.panel_n = source.getPanelN();
        table.k_pack = source.getKPack();
        table.group_n = source.getGroupN();
        if (failed(input(source.getInput(), table.input)))
          return failure();
        weight.source.Set(std::move(table));
        return success();
      })
      .Case([&](RopeTableAttr source) {
        fb::RopeTableSourceT table;
        SmallVector<float> frequencies = computeInvFreq(source.getRope());
        table.inv_freq.assign(frequencies.begin(), frequencies.end());
        table.max_position = source.getMaxPosition();
        weight.source.Set(std::move(table));
        return success();
      })
      .Case([&](QuantizeAttr source) -> LogicalResult {
        fb::QuantizeSourceT table;
        if (failed(input(source.getInput(), table.input)))
          return failure();
        weight.source.Set(std::move(table));
        return success();
      })
      .Case([&](QuantizeScaleAttr source) -> LogicalResult {
        fb::QuantizeScaleSourceT table;
        if (failed(input(source.getInput(), table.input)))
          return failure();
        weight.source.Set(std::move(table));
        return success();
      })
      .Default([&](Attribute source) {
        return op.emitOpError("has source ")
               << source << ", which a module cannot express";
      });
}

} // namespace mlir::prefill
