//===- Target.h - what a model is compiled for ------------------*- C++ -*-===//
#ifndef PREFILL_PIPELINES_TARGET_H
#define PREFILL_PIPELINES_TARGET_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace mlir::prefill {

/// A plan's target, and for CUDA the form of its code: machine code and PTX, or
/// what the emulator runs. Both forms of a chip share a plan.
struct CompileTarget {
  enum Kind { Cpu, Cuda, CudaEmulation };
  Kind kind = Cpu;
  std::string chip; ///< "sm_80"; empty for Cpu

  bool isCuda() const { return kind != Cpu; }
  /// "cpu" or "cuda:sm_80": what passes are told.
  std::string planName() const { return isCuda() ? "cuda:" + chip : "cpu"; }
};

/// "cpu", "cuda:sm_80", "cuda-emu:sm_80"; an error lists the valid ones.
llvm::Expected<CompileTarget> parseCompileTarget(llvm::StringRef name);

} // namespace mlir::prefill

#endif // PREFILL_PIPELINES_TARGET_H
