//===- WriteModule.h - the compiled module as a FlatBuffer ------*- C++ -*-===//
//
// runtime/schema/module.fbs is the format.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TARGET_MODULE_WRITEMODULE_H
#define PREFILL_TARGET_MODULE_WRITEMODULE_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include <string>
#include <vector>

namespace mlir::prefill {

/// The values are those of the schema's CodeFormat.
enum class CodeFormat { Elf, Cubin, Ptx, Emulation };

/// Code of all kernels of a plan.
struct ModuleCode {
  CodeFormat format;
  std::string variant; ///< an ISA variant of the CPU, or the plan's chip
  llvm::SmallVector<char, 0> object;
};

/// What the assembler said of a CUDA kernel; all 0 where there was none.
struct KernelResources {
  int64_t registers = 0, spillBytes = 0, residentBlocks = 0;
  double occupancy = 0;
};

/// What is launched for calls of some lengths.
struct ModuleSchedule {
  int64_t maxRows; ///< the most tokens of a call; 0: any number
  /// The outlined module (level config): weights, the entry function of
  /// launches, its buffers.
  ModuleOp config;
};

/// The model compiled for one target.
struct ModulePlan {
  std::string target;          ///< "cpu", "cuda"
  std::string chip;            ///< "sm_80"; empty for cpu
  int64_t multiprocessors = 0; ///< that tiles were chosen for; 0 for cpu
  /// No launch is left to a library, whose bits depend on how many rows it
  /// multiplies at once.
  bool deterministic = false;
  /// At least one, the longest calls last. A kernel's name means the same
  /// kernel in all of them, and so does a weight's.
  std::vector<ModuleSchedule> schedules;
  /// The kernels of all schedules at level tiled: their arguments are what a
  /// launch passes.
  ModuleOp tiled;
  /// The kernel functions at level kernel, one module for each ISA variant and
  /// one for a chip: grids are read from them, scratch is the largest of the
  /// variants.
  std::vector<ModuleOp> kernels;
  std::vector<ModuleCode> code;
  llvm::StringMap<KernelResources> resources; ///< by kernel; cuda alone
};

/// `plans` are of one model and not empty. Emits an error on failure.
FailureOr<llvm::SmallVector<char, 0>> writeModule(ArrayRef<ModulePlan> plans);

} // namespace mlir::prefill

#endif // PREFILL_TARGET_MODULE_WRITEMODULE_H
