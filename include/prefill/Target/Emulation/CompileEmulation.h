//===- CompileEmulation.h - CUDA kernels for the emulator -------*- C++ -*-===//
//
// Input: kernels in the LLVM and NVVM dialects (llvm.func with `nvvm.kernel`
// in a gpu.module or a module), with the attributes
//   prefill.block_threads : i32   threads of a block, 1 to 1024
//   prefill.shared_bytes  : i64   bytes of the window @prefill_shared
// and one 64-bit parameter for each word of the launch (i64 or a pointer).
// Output: an x86-64 shared object that the emulator loads
// (prefill/emulation/Abi.h): every NVVM operation and every access to memory
// is a call into the emulator.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TARGET_EMULATION_COMPILEEMULATION_H
#define PREFILL_TARGET_EMULATION_COMPILEEMULATION_H

#include "mlir/IR/BuiltinOps.h"
#include "prefill/Codegen/CUDA/LaunchAttributes.h"
#include "llvm/ADT/SmallVector.h"

namespace mlir::prefill {

/// `kernels` is a ModuleOp or a gpu.module; it is not changed. Emits an error
/// that names the operation where a kernel uses what the emulator does not
/// know.
FailureOr<llvm::SmallVector<char, 0>> compileEmulation(Operation *kernels);

} // namespace mlir::prefill

#endif // PREFILL_TARGET_EMULATION_COMPILEEMULATION_H
