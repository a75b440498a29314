//===- Explain.h - `prefill-opt --explain` ----------------------*- C++ -*-===//
#ifndef PREFILL_TOOLS_PREFILL_OPT_EXPLAIN_H
#define PREFILL_TOOLS_PREFILL_OPT_EXPLAIN_H

#include "prefill/Pipelines/Pipelines.h"
#include "llvm/Support/raw_ostream.h"

namespace mlir::prefill {

/// Prints what was not folded and why, the kernels a layer, the four memory
/// classes as functions of the prompt's length (M_pad padded tokens, R_pad
/// padded rows of logits, T threads) and what padding costs. Where the target
/// refuses ops it prints each reason and with how many ops instead, and emits
/// an error. `model` is at level model and is not changed.
LogicalResult
explain(ModuleOp model, const CompileOptions &options,
        llvm::function_ref<LogicalResult(PassManager &)> configure,
        llvm::raw_ostream &os);

} // namespace mlir::prefill

#endif // PREFILL_TOOLS_PREFILL_OPT_EXPLAIN_H
