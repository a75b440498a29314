//===- WriteModule.h - the compiled module as a FlatBuffer ------*- C++ -*-===//
//
// runtime/schema/module.fbs is the format.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TARGET_MODULE_WRITEMODULE_H
#define PREFILL_TARGET_MODULE_WRITEMODULE_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"
#include <string>

namespace mlir::prefill {

/// Code of all kernels for one target and ISA variant.
struct ModuleCode {
  std::string target;  ///< "cpu"
  std::string variant; ///< "avx2", "avx512", "avx512_bf16"
  llvm::SmallVector<char, 0> object;
};

/// `plan` is the outlined module (level config): weights, the entry function of
/// launches, its buffers. `tiled` is the same module at level tiled: its
/// kernels' arguments are what a launch passes. `kernels` holds the kernel
/// functions at level kernel, one module for each variant: grids are read from
/// them, scratch is the largest of the variants. Emits an error on failure.
FailureOr<llvm::SmallVector<char, 0>> writeModule(ModuleOp plan, ModuleOp tiled,
                                                  ArrayRef<ModuleOp> kernels,
                                                  ArrayRef<ModuleCode> code);

} // namespace mlir::prefill

#endif // PREFILL_TARGET_MODULE_WRITEMODULE_H
