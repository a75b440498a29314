//===- ModelContract.h - parts of prefill-verify-model ----------*- C++ -*-===//
// Each rule carries its number in docs/spec.md, "The module".
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TRANSFORMS_MODELCONTRACT_H
#define PREFILL_TRANSFORMS_MODELCONTRACT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::prefill {

/// `prefill.model` has every key, in its range, and says what the ops of
/// `function` say. Needs a function of (batch, cache...) -> (logits, cache...).
LogicalResult verifyModelDescription(ModuleOp module, func::FuncOp function);

/// Each layer appends to its own cache once and attends to the result, and rows
/// of the batch and rows whose logits are asked for do not mix. Needs a
/// function of model ops alone, with as many caches as layers.
LogicalResult verifyModelDataflow(func::FuncOp function);

} // namespace mlir::prefill

#endif // PREFILL_TRANSFORMS_MODELCONTRACT_H
