//===- KernelBuilder.h - builder with index arithmetic ----------*- C++ -*-===//
// Kernel emitters write much address arithmetic; constants fold as it is built.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_COMMON_KERNELBUILDER_H
#define PREFILL_CODEGEN_COMMON_KERNELBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::prefill {

class KernelBuilder : public ImplicitLocOpBuilder {
public:
  using ImplicitLocOpBuilder::ImplicitLocOpBuilder;

  // Arithmetic on index or signless integers; constants take the type of the
  // value beside them. Divisions are unsigned where values are sizes.
  Value index(int64_t value);
  /// `value` as a constant of the type of `other`.
  Value constantLike(Value other, int64_t value);
  Value add(Value lhs, Value rhs);
  Value add(Value lhs, int64_t rhs);
  Value sub(Value lhs, Value rhs);
  Value mul(Value lhs, Value rhs);
  Value mul(Value lhs, int64_t rhs);
  Value divide(Value lhs, int64_t rhs);
  Value divide(Value lhs, Value rhs);
  Value remainder(Value lhs, int64_t rhs);
  Value remainder(Value lhs, Value rhs);
  Value ceilDivide(Value lhs, int64_t rhs);
  Value min(Value lhs, Value rhs);
  Value min(Value lhs, int64_t rhs);
  Value max(Value lhs, Value rhs);
  Value compare(arith::CmpIPredicate predicate, Value lhs, Value rhs);
  /// An i32 or i64 as index: sign-extended.
  Value toIndex(Value integer);

  /// An f32 constant, as a scalar and in every lane of a vector.
  Value f32(double value);
  Value splatF32(double value, int64_t lanes);
  Value splatI32(int64_t value, int64_t lanes);
  VectorType vectorF32(int64_t lanes);

  /// `for i in [begin, end) step step`; `body` gets i.
  void forLoop(Value begin, Value end, int64_t step,
               llvm::function_ref<void(Value)> body);
  /// The same with values carried from one iteration to the next.
  SmallVector<Value>
  forLoop(Value begin, Value end, int64_t step, ValueRange init,
          llvm::function_ref<SmallVector<Value>(Value, ValueRange)> body);
  void ifThen(Value condition, llvm::function_ref<void()> body);
  void ifThenElse(Value condition, llvm::function_ref<void()> body,
                  llvm::function_ref<void()> otherwise);
};

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_COMMON_KERNELBUILDER_H
