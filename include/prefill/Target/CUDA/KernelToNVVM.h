//===- KernelToNVVM.h - level kernel of target cuda to NVVM -----*- C++ -*-===//
#ifndef PREFILL_TARGET_CUDA_KERNELTONVVM_H
#define PREFILL_TARGET_CUDA_KERNELTONVVM_H

#include "mlir/Pass/PassManager.h"

namespace mlir::prefill {

/// Lowers what prefill-convert-to-cuda-kernels leaves to the LLVM and NVVM
/// dialects: "the NVVM form", the input of PTX and of the emulator. Locations
/// of named sites stay.
void buildKernelToNVVMPipeline(OpPassManager &pm);

} // namespace mlir::prefill

#endif // PREFILL_TARGET_CUDA_KERNELTONVVM_H
