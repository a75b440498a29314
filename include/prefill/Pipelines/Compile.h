//===- Compile.h - a model to the bytes of a module -------------*- C++ -*-===//
#ifndef PREFILL_PIPELINES_COMPILE_H
#define PREFILL_PIPELINES_COMPILE_H

#include "prefill/Pipelines/Pipelines.h"

namespace mlir::prefill {

/// Compiles `module` (level model) for the CPU, every ISA variant, and returns
/// the `.pfm` file's bytes. `module` is left at level config. Emits an error on
/// failure. `configure` is applied to every pass manager.
FailureOr<llvm::SmallVector<char, 0>>
compileForCpu(ModuleOp module, const CompileOptions &options,
              llvm::function_ref<LogicalResult(PassManager &)> configure);

/// Removes everything but kernel functions: what levels kernel and target start
/// from.
void keepOnlyKernels(ModuleOp module);

} // namespace mlir::prefill

#endif // PREFILL_PIPELINES_COMPILE_H
