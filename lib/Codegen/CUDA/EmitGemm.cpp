//===- EmitGemm.cpp - a gemm's workgroup --------------------------===//
#include "prefill/Codegen/CUDA/EmitKernels.h"

using namespace mlir;
using namespace mlir::prefill;

LogicalResult prefill::emitGemmKernel(KernelFrame &frame, const CudaChip &chip,
                                      func::FuncOp tiled) {
  return tiled.emitError() << "kernel " << tiled.getSymName()
                           << " is a gemm, which target cuda cannot emit";
}
