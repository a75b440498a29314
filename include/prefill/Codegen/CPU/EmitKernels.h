//===- EmitKernels.h - one emitter for each kind of kernel ------*- C++ -*-===//
// Each fills the body of `abi`'s function from a tiled kernel. They emit a
// diagnostic that names op and attribute on what they cannot do.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CPU_EMITKERNELS_H
#define PREFILL_CODEGEN_CPU_EMITKERNELS_H

#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/CPU/KernelABI.h"

namespace mlir::prefill {

/// A prefill.gemm in tile form.
LogicalResult emitGemmKernel(KernelABI &abi, const CpuIsa &isa,
                             func::FuncOp tiled);
/// A prefill.rowwise in tile form.
LogicalResult emitRowwiseKernel(KernelABI &abi, const CpuIsa &isa,
                                func::FuncOp tiled);
/// Tiled attention, fused or not.
LogicalResult emitAttentionKernel(KernelABI &abi, const CpuIsa &isa,
                                  func::FuncOp tiled);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_EMITKERNELS_H
