//===- EmitKernels.h - one emitter for each kind of kernel ------*- C++ -*-===//
// Each fills the body of `frame`'s function from a tiled kernel and sets
// frame.blockThreads. They emit a diagnostic that names op and attribute on
// what they cannot do.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_EMITKERNELS_H
#define PREFILL_CODEGEN_CUDA_EMITKERNELS_H

#include "prefill/Codegen/CUDA/ChipTable.h"
#include "prefill/Codegen/CUDA/KernelFrame.h"

namespace mlir::prefill {

/// A prefill.gemm in tile form.
LogicalResult emitGemmKernel(KernelFrame &frame, const CudaChip &chip,
                             func::FuncOp tiled);
/// A prefill.rowwise in tile form.
LogicalResult emitRowwiseKernel(KernelFrame &frame, const CudaChip &chip,
                                func::FuncOp tiled);
/// Tiled attention, fused or not.
LogicalResult emitAttentionKernel(KernelFrame &frame, const CudaChip &chip,
                                  func::FuncOp tiled);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CUDA_EMITKERNELS_H
