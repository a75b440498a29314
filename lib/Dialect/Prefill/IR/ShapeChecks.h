//===- ShapeChecks.h - what verifiers of different ops have in common -----===//
// Constraints TENSOR-C* of docs/spec.md. A message names the op, the operand
// and its type, and what was expected of it.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_LIB_DIALECT_PREFILL_IR_SHAPECHECKS_H
#define PREFILL_LIB_DIALECT_PREFILL_IR_SHAPECHECKS_H

#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {

/// f64, f32, bf16 or f16: the types that every part of the compiler knows.
bool isSupportedFloat(Type type);

/// Which types an operand's elements may have.
enum class Elements { Floats, FloatsOrInt8 };

/// More than any model has, and little enough that no count of bytes overflows.
constexpr int64_t kMaxElements = int64_t(1) << 48;

/// TENSOR-C5: the product of the static extents is at most kMaxElements.
/// Extents are not negative.
bool isSupportedCount(ArrayRef<int64_t> extents);

/// TENSOR-C1, TENSOR-C3, TENSOR-C5: [rows, channels], rows static or not,
/// channels static and at least 1, of a supported float or where the op says so
/// of 8-bit integers.
LogicalResult verifyActivation(Operation *op, StringRef name, Value value,
                               Elements elements = Elements::Floats);

/// TENSOR-C2, TENSOR-C3, TENSOR-C5: a weight, of the given rank, all extents
/// static and at least 1, of elements as for an activation.
LogicalResult verifyConstant(Operation *op, StringRef name, Value value,
                             int64_t rank,
                             Elements elements = Elements::Floats);

/// Of a tensor.
Type elementTypeOf(Value value);
int64_t rowsOf(Value activation);
int64_t channelsOf(Value activation);

/// TENSOR-C4: where both are static, the numbers of rows agree.
LogicalResult verifySameRows(Operation *op, StringRef name, Value value,
                             StringRef otherName, Value other);

/// The numbers of channels agree, and TENSOR-C4.
LogicalResult verifySameShape(Operation *op, StringRef name, Value value,
                              StringRef otherName, Value other);

/// BUFFERS-C1, BUFFERS-C2: a #prefill.buffer for each tensor result, unit for
/// each cache. `name` is the attribute's.
LogicalResult verifyBufferAttrs(Operation *op, StringRef name,
                                ArrayAttr buffers);

/// Epsilon of a norm: finite and not negative.
LogicalResult verifyEpsilon(Operation *op, const APFloat &eps);

} // namespace mlir::prefill

#endif // PREFILL_LIB_DIALECT_PREFILL_IR_SHAPECHECKS_H
