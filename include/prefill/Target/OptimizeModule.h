//===- OptimizeModule.h - LLVM's passes over kernels ------------*- C++ -*-===//
#ifndef PREFILL_TARGET_OPTIMIZEMODULE_H
#define PREFILL_TARGET_OPTIMIZEMODULE_H

#include "llvm/Passes/OptimizationLevel.h"

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace mlir::prefill {

/// LLVM's passes of a level without vectorising and unrolling loops: the
/// compiler's emitters do both where it pays.
void optimizeModule(
    llvm::Module &module, llvm::TargetMachine &machine,
    llvm::OptimizationLevel level = llvm::OptimizationLevel::O3);

} // namespace mlir::prefill

#endif // PREFILL_TARGET_OPTIMIZEMODULE_H
