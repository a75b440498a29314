//===- ShapeChecks.cpp - what verifiers of different ops have in common ---===//
#include "ShapeChecks.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::prefill;

bool prefill::isSupportedFloat(Type type) {
  return type.isF64() || type.isF32() || type.isBF16() || type.isF16();
}

bool prefill::isSupportedCount(ArrayRef<int64_t> extents) {
  int64_t count = 1;
  for (int64_t extent : extents) {
    if (ShapedType::isDynamic(extent))
      continue;
    if (llvm::MulOverflow(count, extent, count) || count > kMaxElements)
      return false;
  }
  return true;
}

// TENSOR-C5
static LogicalResult verifyCount(Operation *op, StringRef name,
                                 RankedTensorType type) {
  if (!isSupportedCount(type.getShape()))
    return op->emitOpError(name) << " is " << type << ", expected at most "
                                 << kMaxElements << " elements";
  return success();
}

// TENSOR-C3
static LogicalResult verifyElementType(Operation *op, StringRef name,
                                       RankedTensorType type,
                                       Elements elements) {
  bool allowsInt8 = elements == Elements::FloatsOrInt8;
  if (!isSupportedFloat(type.getElementType()) &&
      !(allowsInt8 && type.getElementType().isSignlessInteger(8)))
    return op->emitOpError(name)
           << " is " << type << ", expected elements of f64, f32, bf16"
           << (allowsInt8 ? ", f16 or i8" : " or f16");
  return verifyCount(op, name, type);
}

// TENSOR-C1
LogicalResult prefill::verifyActivation(Operation *op, StringRef name,
                                        Value value, Elements elements) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() != 2)
    return op->emitOpError(name)
           << " is " << type << ", expected rank 2: [rows, channels]";
  if (type.isDynamicDim(1) || type.getDimSize(1) < 1)
    return op->emitOpError(name)
           << " is " << type << ", expected a static number of channels";
  return verifyElementType(op, name, type, elements);
}

// TENSOR-C2
LogicalResult prefill::verifyConstant(Operation *op, StringRef name,
                                      Value value, int64_t rank,
                                      Elements elements) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() != rank)
    return op->emitOpError(name)
           << " is " << type << ", expected rank " << rank;
  if (!type.hasStaticShape() || llvm::is_contained(type.getShape(), 0))
    return op->emitOpError(name)
           << " is " << type << ", expected static extents of at least 1";
  return verifyElementType(op, name, type, elements);
}

Type prefill::elementTypeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getElementType();
}

int64_t prefill::rowsOf(Value activation) {
  return cast<RankedTensorType>(activation.getType()).getDimSize(0);
}

int64_t prefill::channelsOf(Value activation) {
  return cast<RankedTensorType>(activation.getType()).getDimSize(1);
}

// TENSOR-C4
LogicalResult prefill::verifySameRows(Operation *op, StringRef name,
                                      Value value, StringRef otherName,
                                      Value other) {
  int64_t rows = rowsOf(value), otherRows = rowsOf(other);
  if (ShapedType::isStatic(rows) && ShapedType::isStatic(otherRows) &&
      rows != otherRows)
    return op->emitOpError(name)
           << " is " << value.getType() << " but " << otherName << " is "
           << other.getType() << ": their rows must agree";
  return success();
}

LogicalResult prefill::verifySameShape(Operation *op, StringRef name,
                                       Value value, StringRef otherName,
                                       Value other) {
  if (channelsOf(value) != channelsOf(other))
    return op->emitOpError(name)
           << " is " << value.getType() << " but " << otherName << " is "
           << other.getType() << ": their channels must agree";
  return verifySameRows(op, name, value, otherName, other);
}

LogicalResult prefill::verifyEpsilon(Operation *op, const APFloat &eps) {
  if (!eps.isFinite() || eps.isNegative())
    return op->emitOpError("eps is ")
           << eps.convertToDouble()
           << ", expected a finite number of at least 0";
  return success();
}
