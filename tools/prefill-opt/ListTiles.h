//===- ListTiles.h - `prefill-opt --list-tiles` -----------------*- C++ -*-===//
#ifndef PREFILL_TOOLS_PREFILL_OPT_LISTTILES_H
#define PREFILL_TOOLS_PREFILL_OPT_LISTTILES_H

#include "prefill/Pipelines/Pipelines.h"
#include "llvm/Support/raw_ostream.h"

namespace mlir::prefill {

/// Writes as JSON which tiles of the table fit each gemm and attention of the
/// model on the chip of `options.target`, with the estimated time at the most
/// rows of each schedule, and which one the compiler takes there: what
/// `prefill-bench --tune` measures and a tuning file may name. `model` is at
/// level model and is not changed. Emits an error on what the target refuses.
LogicalResult
listTiles(ModuleOp model, const CompileOptions &options,
          llvm::function_ref<LogicalResult(PassManager &)> configure,
          llvm::raw_ostream &os);

} // namespace mlir::prefill

#endif // PREFILL_TOOLS_PREFILL_OPT_LISTTILES_H
