//===- WeightVerifiers.cpp - the load-time transform program --------------===//
// A step is checked against the weights that it reads, which are symbols: the
// rules of docs/spec.md, "Weight program".
//===----------------------------------------------------------------------===//
#include "ShapeChecks.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::prefill;

LogicalResult WeightOp::verify() {
  auto type = dyn_cast<RankedTensorType>(getType());
  // WEIGHT-C1
  bool mayBeInt8 = isa<QuantizeAttr, PackAttr>(getSource());
  if (!type || !type.hasStaticShape() || type.getRank() == 0 ||
      llvm::is_contained(type.getShape(), 0) ||
      !(isSupportedFloat(type.getElementType()) ||
        (mayBeInt8 && type.getElementType().isSignlessInteger(8))))
    return emitOpError("@") << getSymName() << " is " << getType()
                            << ", expected a static tensor of f64, f32, bf16"
                            << (mayBeInt8 ? ", f16 or i8" : " or f16");
  // WEIGHT-C5
  if (!isSupportedCount(type.getShape()))
    return emitOpError("@")
           << getSymName() << " is " << getType() << ", expected at most "
           << kMaxElements << " elements";
  // WEIGHT-C2
  if (!isa<CheckpointAttr, ConcatAttr, InterleaveAttr, ScaleColumnsAttr,
           PackAttr, RopeTableAttr, QuantizeAttr, QuantizeScaleAttr>(
          getSource()))
    return emitOpError("@")
           << getSymName() << " comes from " << getSource()
           << ", expected checkpoint, concat, interleave, scale_columns, pack, "
              "rope_table, quantize or quantize_scale";
  return success();
}

/// Weights that the source names.
static SmallVector<FlatSymbolRefAttr> inputsOf(Attribute source) {
  return llvm::TypeSwitch<Attribute, SmallVector<FlatSymbolRefAttr>>(source)
      .Case([](ConcatAttr step) {
        return SmallVector<FlatSymbolRefAttr>(step.getInputs());
      })
      .Case([](InterleaveAttr step) {
        return SmallVector<FlatSymbolRefAttr>{step.getFirst(),
                                              step.getSecond()};
      })
      .Case([](ScaleColumnsAttr step) {
        return SmallVector<FlatSymbolRefAttr>{step.getInput(), step.getGain()};
      })
      .Case<PackAttr, QuantizeAttr, QuantizeScaleAttr>([](auto step) {
        return SmallVector<FlatSymbolRefAttr>{step.getInput()};
      })
      .Default([](Attribute) { return SmallVector<FlatSymbolRefAttr>(); });
}

namespace {
/// Checks one weight's step. `inputs` are the weights that it reads.
class StepVerifier {
public:
  StepVerifier(WeightOp weight, MutableArrayRef<WeightOp> inputs)
      : weight(weight), result(weight.getTensorType()), inputs(inputs) {}

  LogicalResult verify(ConcatAttr step);
  LogicalResult verify(InterleaveAttr step);
  LogicalResult verify(ScaleColumnsAttr step);
  LogicalResult verify(PackAttr step);
  LogicalResult verify(RopeTableAttr step);
  LogicalResult verify(QuantizeAttr step);
  LogicalResult verify(QuantizeScaleAttr step);

  /// WEIGHT-C6: 8-bit integers without their scales mean nothing, so that no
  /// step computes with them.
  LogicalResult verifyInputTypes();

private:
  RankedTensorType typeOf(size_t index) {
    return inputs[index].getTensorType();
  }
  InFlightDiagnostic error() {
    return weight.emitOpError("@") << weight.getSymName() << " is " << result;
  }
  /// " but @name is 'TYPE'".
  std::string other(size_t index) {
    std::string text;
    llvm::raw_string_ostream(text) << " but @" << inputs[index].getSymName()
                                   << " is '" << typeOf(index) << "'";
    return text;
  }

  WeightOp weight;
  RankedTensorType result;
  MutableArrayRef<WeightOp> inputs;
};
} // namespace

// CONCAT-C2, CONCAT-C3
LogicalResult StepVerifier::verify(ConcatAttr) {
  int64_t rows = 0;
  for (size_t index = 0; index < inputs.size(); ++index) {
    if (typeOf(index).getShape().drop_front() != result.getShape().drop_front())
      return error() << other(index)
                     << ": all extents but the first must agree";
    rows += typeOf(index).getDimSize(0);
  }
  if (rows != result.getDimSize(0))
    return error() << " but its parts have " << rows
                   << " rows together: they must agree";
  return success();
}

// INTERLEAVE-C2, INTERLEAVE-C3
LogicalResult StepVerifier::verify(InterleaveAttr step) {
  if (typeOf(0).getShape() != typeOf(1).getShape())
    return weight.emitOpError("@")
           << weight.getSymName() << " interleaves @" << inputs[0].getSymName()
           << ", which is " << typeOf(0) << ", and @" << inputs[1].getSymName()
           << ", which is " << typeOf(1) << ": their shapes must agree";
  SmallVector<int64_t> expected(typeOf(0).getShape());
  expected[0] = 2 * llvm::alignTo(expected[0], step.getGranularity());
  if (result.getShape() != ArrayRef(expected))
    return error() << other(0) << ", interleaved in runs of "
                   << step.getGranularity() << ": expected "
                   << result.clone(expected);
  return success();
}

// SCALE_COLUMNS-C1, SCALE_COLUMNS-C2
LogicalResult StepVerifier::verify(ScaleColumnsAttr) {
  if (result.getRank() != 2 || typeOf(0).getShape() != result.getShape())
    return error() << other(0) << ": expected two matrices of one shape";
  if (typeOf(1).getRank() != 1 ||
      typeOf(1).getDimSize(0) != result.getDimSize(1))
    return error() << other(1) << ": expected one gain for each column";
  return success();
}

LogicalResult StepVerifier::verifyInputTypes() {
  for (size_t index = 0; index < inputs.size(); ++index)
    if (typeOf(index).getElementType().isSignlessInteger(8) &&
        !isa<PackAttr>(weight.getSource()))
      return error() << other(index)
                     << ": weights of i8 are packed and nothing else";
  return success();
}

// PACK-C2, PACK-C3, PACK-C4, PACK-C5
LogicalResult StepVerifier::verify(PackAttr step) {
  if (typeOf(0).getRank() != 2)
    return error() << other(0) << ": expected a matrix to pack";
  int64_t n = typeOf(0).getDimSize(0), k = typeOf(0).getDimSize(1);
  if (n % step.getGroupN())
    return weight.emitOpError("@")
           << weight.getSymName() << " is packed in groups of "
           << step.getGroupN() << " rows but @" << inputs[0].getSymName()
           << " is " << typeOf(0) << ": group_n must divide N";
  if (result.getElementType().isSignlessInteger(8) !=
      typeOf(0).getElementType().isSignlessInteger(8))
    return error() << other(0) << ": expected both of i8 or neither";
  int64_t panelsEach =
      llvm::divideCeilSigned(step.getGroupN(), step.getPanelN());
  RankedTensorType expected =
      result.clone({n / step.getGroupN() * panelsEach,
                    llvm::divideCeilSigned(k, step.getKPack()),
                    step.getPanelN(), step.getKPack()});
  if (result != expected)
    return error() << other(0) << ", packed by " << step << ": expected "
                   << expected;
  return success();
}

// ROPE_TABLE-C2
LogicalResult StepVerifier::verify(RopeTableAttr step) {
  auto expected = RankedTensorType::get(
      {step.getMaxPosition(), step.getRope().getRotaryDim()},
      Float32Type::get(weight.getContext()));
  if (result != expected)
    return error() << " but its table has type " << expected;
  return success();
}

// QUANTIZE-C1, QUANTIZE-C2
LogicalResult StepVerifier::verify(QuantizeAttr) {
  if (typeOf(0).getRank() != 2)
    return error() << other(0) << ": expected a matrix to quantize";
  RankedTensorType expected =
      typeOf(0).clone(IntegerType::get(weight.getContext(), 8));
  if (result != expected)
    return error() << other(0) << ": expected " << expected;
  return success();
}

// QUANTIZE_SCALE-C1, QUANTIZE_SCALE-C2
LogicalResult StepVerifier::verify(QuantizeScaleAttr) {
  if (typeOf(0).getRank() != 2)
    return error() << other(0) << ": expected a matrix with scales";
  auto expected = RankedTensorType::get({typeOf(0).getDimSize(0)},
                                        Float32Type::get(weight.getContext()));
  if (result != expected)
    return error() << other(0) << ": expected " << expected;
  return success();
}

LogicalResult WeightOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  SmallVector<WeightOp> inputs;
  for (FlatSymbolRefAttr symbol : inputsOf(getSource())) {
    auto input = symbolTable.lookupNearestSymbolFrom<WeightOp>(*this, symbol);
    // WEIGHT-C3
    if (!input)
      return emitOpError("@")
             << getSymName() << " is made from " << symbol
             << ", which is not a prefill.weight of this module";
    inputs.push_back(input);
  }
  // WEIGHT-C4
  llvm::SetVector<WeightOp> reached(inputs.begin(), inputs.end());
  for (size_t next = 0; next < reached.size(); ++next) {
    WeightOp step = reached[next];
    if (step == *this)
      return emitOpError("@") << getSymName() << " is made from itself";
    for (FlatSymbolRefAttr symbol : inputsOf(step.getSource()))
      if (auto input =
              symbolTable.lookupNearestSymbolFrom<WeightOp>(*this, symbol))
        reached.insert(input);
  }
  StepVerifier verifier(*this, inputs);
  if (failed(verifier.verifyInputTypes()))
    return failure();
  return llvm::TypeSwitch<Attribute, LogicalResult>(getSource())
      .Case<ConcatAttr, InterleaveAttr, ScaleColumnsAttr, PackAttr,
            RopeTableAttr, QuantizeAttr, QuantizeScaleAttr>(
          [&](auto step) { return verifier.verify(step); })
      .Default([](Attribute) { return success(); });
}

LogicalResult
GetWeightOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  auto weight =
      symbolTable.lookupNearestSymbolFrom<WeightOp>(*this, getNameAttr());
  // GET_WEIGHT-C1
  if (!weight)
    return emitOpError("names weight ")
           << getNameAttr() << ", which is not a prefill.weight of this module";
  // GET_WEIGHT-C2
  if (weight.getType() != getType())
    return emitOpError("has type ")
           << getType() << ", but weight " << getNameAttr() << " has type "
           << weight.getType();
  return success();
}
