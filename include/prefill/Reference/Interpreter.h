//===- Interpreter.h - the oracle -------------------------------*- C++ -*-===//
// Runs the entry function of a module at the levels model, fused and config
// (before prefill-pack-weights), launches included. design.md: graph passes are
// checked by running a module before and after them, without rounding.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_REFERENCE_INTERPRETER_H
#define PREFILL_REFERENCE_INTERPRETER_H

#include "prefill/Reference/Batch.h"
#include "prefill/Reference/Weights.h"
#include <functional>

namespace mlir::prefill::reference {

/// Called after each op (those of regions and kernels too) with a tensor that
/// it made.
using TraceHook = std::function<void(Operation *, const Tensor &)>;

class Interpreter {
public:
  /// `module` has passed the verifier. Module and provider must outlive the
  /// interpreter. Weights are evaluated at first use and kept.
  Interpreter(ModuleOp module, WeightProvider &provider,
              Rounding rounding = Rounding::None);

  void setTraceHook(TraceHook hook) { trace = std::move(hook); }

  /// Empty caches of `numBlocks` blocks, one for each cache argument of the
  /// entry function. Error: there is no entry function.
  llvm::Expected<std::vector<KVCache>> makeCaches(int64_t numBlocks);

  /// Block size of the caches (of all layers), or 1 for a model without a
  /// cache.
  llvm::Expected<int64_t> blockSize();

  /// The logits [R, V] of a call; `caches`, in argument order, are replaced by
  /// the caches that it returns. On an error, which names the op and its layer,
  /// they are as before.
  llvm::Expected<Tensor> run(const Batch &batch, std::vector<KVCache> &caches);

private:
  ModuleOp module;
  WeightProgram weights;
  Rounding rounding;
  TraceHook trace;
};

} // namespace mlir::prefill::reference

#endif // PREFILL_REFERENCE_INTERPRETER_H
