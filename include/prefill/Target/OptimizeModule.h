//===- OptimizeModule.h - LLVM's passes over kernels ------------*- C++ -*-===//
#ifndef PREFILL_TARGET_OPTIMIZEMODULE_H
#define PREFILL_TARGET_OPTIMIZEMODULE_H

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace mlir::prefill {

/// LLVM's -O3 without vectorising and unrolling loops: the compiler's emitters
/// do both where it pays.
void optimizeModule(llvm::Module &module, llvm::TargetMachine &machine);

} // namespace mlir::prefill

#endif // PREFILL_TARGET_OPTIMIZEMODULE_H
