//===- Pipelines.h - the order of passes ------------------------*- C++ -*-===//
//
// One place for the order: docs/architecture.md, "The way of the data".
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_PIPELINES_PIPELINES_H
#define PREFILL_PIPELINES_PIPELINES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "prefill/Codegen/CPU/CpuCaches.h"
#include "prefill/Pipelines/Target.h"
#include "prefill/Pipelines/TuningFile.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>
#include <vector>

namespace mlir::prefill {

/// Levels of IR, in the order in which a model passes through them.
enum class Level { Model, Fused, Config, Tiled, Kernel, Target };

std::optional<Level> parseLevel(llvm::StringRef name);
llvm::StringRef levelName(Level level);
/// "model, fused, ..." for messages.
std::string allLevelNames();

/// What a module is compiled for.
struct CompileOptions {
  CompileTarget target; ///< of the levels from config on
  std::string dtype;    ///< "f32", "bf16", "f16"; empty: the model's
  /// "int8": the layers' projections multiply 8-bit integers (CPU only); empty:
  /// weights have the model's dtype.
  std::string weights;
  std::string kvLayout = "contiguous"; ///< a KVLayout's name
  int64_t kvBlockSize = 16;            ///< tokens a block of paged_nhd
  int64_t maxSeq = 0; ///< 0: the lesser of 4096 and the model's maximum
  CpuCaches caches;   ///< what tiles are made for
  Tuning tuning;      ///< what overrules the tables of tiles
  /// CUDA: the schedule that level config and those behind it are of, by its
  /// limit. 0: calls of any length.
  int64_t maxRows = 0;
  /// A row has the same bits in every call, whatever is computed beside it and
  /// wherever the call before ended: CUDA's attention is never split, and no
  /// launch is left to a library.
  bool deterministic = false;
  std::vector<std::string> disabledPasses; ///< flags of passes to leave out
  std::string isa =
      "avx512_bf16"; ///< the variant that levels kernel and target print
  /// The variants that a module gets code for, of those that are of use for the
  /// model. Empty: all of them.
  std::vector<std::string> moduleIsas;
};

/// Flags of the passes that `disabledPasses` may name, in pipeline order.
std::vector<std::string> optionalPassFlags();

/// Appends the passes that lead from the level before `level` to it, and its
/// verifier. Level::Target is one ISA variant of the CPU, or a chip, in the
/// LLVM dialect.
LogicalResult buildLevel(Level level, const CompileOptions &options,
                         OpPassManager &pm);

/// Runs the levels from the model to `last` on `module`.
LogicalResult
runToLevel(ModuleOp module, Level last, const CompileOptions &options,
           llvm::function_ref<LogicalResult(PassManager &)> configure);

} // namespace mlir::prefill

#endif // PREFILL_PIPELINES_PIPELINES_H
