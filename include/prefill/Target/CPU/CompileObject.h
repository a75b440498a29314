//===- CompileObject.h - kernels to an x86-64 ELF shared object -*- C++ -*-===//
//
// Input is the level `kernel` for one ISA variant: func.func's with flattened
// arguments (docs/architecture.md, "Kernel ABI"). Output is the bytes of a
// shared object that exports, for each kernel, the entry
//   void NAME(const uint64_t *args, int64_t wg_begin, int64_t wg_end, void
//   *scratch)
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TARGET_CPU_COMPILEOBJECT_H
#define PREFILL_TARGET_CPU_COMPILEOBJECT_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"
#include <string>

namespace mlir::prefill {

/// What LLVM generates code for; the values of one ISA variant
/// (Codegen/CPU/IsaTable).
struct CpuTarget {
  std::string cpu;      ///< for example "x86-64-v4"
  std::string features; ///< for example "+avx512bf16"
  /// False: LLVM is quick about it, for code that runs a few times.
  bool optimize = true;
};

/// Appends the passes from level `kernel` to the LLVM dialect (level `target`).
void buildKernelToLLVMPipeline(OpPassManager &pm);

/// Adds the entries NAME for the kernels of a module in the LLVM dialect; a
/// body is renamed to NAME.body and becomes internal.
LogicalResult addKernelEntries(ModuleOp module);

/// Loads the dialects that compileObject needs. With all of them loaded,
/// several modules of a context may be compiled at the same time.
void loadDialectsOfObjects(MLIRContext &context);

/// Lowers a copy of `kernels` and returns the relocatable object. Emits an
/// error on failure.
FailureOr<llvm::SmallVector<char, 0>> compileObject(ModuleOp kernels,
                                                    const CpuTarget &target);

/// The relocatable object of a module in the LLVM dialect. Emits an error on
/// failure.
FailureOr<llvm::SmallVector<char, 0>> emitObject(ModuleOp kernels,
                                                 const CpuTarget &target);

/// Links one relocatable object to a shared object with lld, of which a process
/// runs one at a time. `name` is used in messages. Emits an error at `loc`.
FailureOr<llvm::SmallVector<char, 0>>
linkSharedObject(llvm::ArrayRef<char> object, llvm::StringRef name,
                 Location loc);

} // namespace mlir::prefill

#endif // PREFILL_TARGET_CPU_COMPILEOBJECT_H
