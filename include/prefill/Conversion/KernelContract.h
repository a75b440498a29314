//===- KernelContract.h - what kernels of all levels promise ----*- C++ -*-===//
#ifndef PREFILL_CONVERSION_KERNELCONTRACT_H
#define PREFILL_CONVERSION_KERNELCONTRACT_H

#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {

/// What levels tiled and kernel have in common: a kernel function has a body,
/// no results, and `prefill.grid` says how many workgroups run it. Emits one
/// diagnostic on failure.
LogicalResult verifyKernelFunction(func::FuncOp kernel);

/// What a tiled kernel computes.
enum class KernelKind { Gemm, Rowwise, Attention };

/// Emits a diagnostic where the kernel holds nothing that `target` can emit.
FailureOr<KernelKind> findKernelKind(func::FuncOp tiled, StringRef target);

} // namespace mlir::prefill

#endif // PREFILL_CONVERSION_KERNELCONTRACT_H
