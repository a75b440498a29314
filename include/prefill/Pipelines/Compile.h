//===- Compile.h - a model to the bytes of a module -------------*- C++ -*-===//
#ifndef PREFILL_PIPELINES_COMPILE_H
#define PREFILL_PIPELINES_COMPILE_H

#include "mlir/IR/OwningOpRef.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Pipelines/Pipelines.h"

namespace mlir::prefill {

struct CompiledModule {
  llvm::SmallVector<char, 0> bytes;  ///< of the `.pfm` file
  std::vector<std::string> warnings; ///< one line each
};

/// Compiles `model` (level model; left as it is) for every target: a plan for
/// the CPU with code for its ISA variants (cpuIsasOf), and one for each CUDA
/// chip with machine code, PTX and what the emulator runs, as asked for.
/// `options.target` is ignored. `assembler`: ptxas; without one CUDA plans have
/// PTX alone. Emits an error on failure. `configure` is applied to every pass
/// manager.
FailureOr<CompiledModule>
compileModule(ModuleOp model, const CompileOptions &options,
              ArrayRef<CompileTarget> targets,
              const std::optional<std::string> &assembler,
              llvm::function_ref<LogicalResult(PassManager &)> configure);

/// The kernels of a plan for a chip, those of every schedule, at level target.
/// `model` is left as it is.
FailureOr<OwningOpRef<ModuleOp>>
lowerCudaKernels(ModuleOp model, const CompileOptions &options,
                 llvm::function_ref<LogicalResult(PassManager &)> configure);

/// The variants that a module has code for. Where nothing multiplies bf16 one
/// with tiles would only repeat another's code, and so would one for 8-bit
/// integers where nothing multiplies these. `tiled`: at level tiled.
/// `wanted`: what is asked for (CompileOptions::moduleIsas); an error where
/// nothing of that is left.
FailureOr<SmallVector<const CpuIsa *>> cpuIsasOf(ModuleOp tiled,
                                                 ArrayRef<std::string> wanted);

/// Removes everything but kernel functions: what levels kernel and target start
/// from.
void keepOnlyKernels(ModuleOp module);

} // namespace mlir::prefill

#endif // PREFILL_PIPELINES_COMPILE_H
