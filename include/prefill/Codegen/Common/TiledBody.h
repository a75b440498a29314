//===- TiledBody.h - a tiled kernel's loops, for one target -----*- C++ -*-===//
#ifndef PREFILL_CODEGEN_COMMON_TILEDBODY_H
#define PREFILL_CODEGEN_COMMON_TILEDBODY_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "prefill/Codegen/Common/KernelBuilder.h"

namespace mlir::prefill {

/// What a target has in place of the ops that it does not take as they are.
struct TiledBodyTarget {
  /// Builds what runs the workgroups, of which there are `count` (an attribute,
  /// or a value of the kernel), and calls `body` once, with the workgroup.
  llvm::function_ref<void(OpFoldResult count,
                          llvm::function_ref<void(Value)> body)>
      runWorkgroups;
  /// Row count of an argument of the tiled kernel; null where it has none.
  llvm::function_ref<Value(Value argument)> rowsOf;
  /// Emits an op of the prefill dialect. The mapping has the values of its
  /// index operands.
  llvm::function_ref<LogicalResult(Operation *, IRMapping &)> emitOp;
};

/// Clones the body of a tiled kernel to where `b` stands: scf.forall and ops of
/// the prefill dialect are the target's, dims become row counts; scf and arith
/// ops are cloned. Anything else fails with a diagnostic.
LogicalResult cloneTiledBody(func::FuncOp tiled, KernelBuilder &b,
                             const TiledBodyTarget &target);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_COMMON_TILEDBODY_H
