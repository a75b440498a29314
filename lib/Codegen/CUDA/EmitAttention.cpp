//===- EmitAttention.cpp - attention's workgroup --------------------------===//
#include "prefill/Codegen/CUDA/EmitKernels.h"

using namespace mlir;
using namespace mlir::prefill;

LogicalResult prefill::emitAttentionKernel(KernelFrame &frame,
                                           const CudaChip &chip,
                                           func::FuncOp tiled) {
  return tiled.emitError() << "kernel " << tiled.getSymName()
                           << " is attention, which target cuda cannot emit";
}
