//===- KernelMerging.h - one set of kernels for several plans ---*- C++ -*-===//
#ifndef PREFILL_DIALECT_PREFILL_TRANSFORMS_KERNELMERGING_H
#define PREFILL_DIALECT_PREFILL_TRANSFORMS_KERNELMERGING_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include <string>

namespace mlir::prefill {

/// Text of a kernel without its name: kernels with equal texts are one.
std::string kernelText(func::FuncOp kernel);

/// Copies to `all` the kernels of `other` that it has not, and gives kernels
/// and launches of `other` the names that they have there. Both are outlined.
/// A new kernel has its own name with `suffix` behind.
void mergeKernels(ModuleOp all, ModuleOp other, StringRef suffix);

/// The same launches on the same buffers, once kernels are merged.
bool haveSameLaunches(ModuleOp a, ModuleOp b);

} // namespace mlir::prefill

#endif // PREFILL_DIALECT_PREFILL_TRANSFORMS_KERNELMERGING_H
