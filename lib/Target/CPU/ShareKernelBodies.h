//===- ShareKernelBodies.h - one body for equal kernels ---------*- C++ -*-===//
#ifndef PREFILL_TARGET_CPU_SHAREKERNELBODIES_H
#define PREFILL_TARGET_CPU_SHAREKERNELBODIES_H

#include "mlir/Pass/Pass.h"

namespace mlir::prefill {

/// Kernels whose code differs only in which of their arguments they read, as a
/// gemm of all rows and the same one of the rows that get logits, share the
/// body of the first: the others call it with their arguments in its order.
std::unique_ptr<Pass> createShareKernelBodiesPass();

} // namespace mlir::prefill

#endif // PREFILL_TARGET_CPU_SHAREKERNELBODIES_H
