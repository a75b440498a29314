//===- WriteModel.h - a module as text ---------------------------*- C++
//-*-===//
#ifndef PREFILL_TRANSLATE_WRITEMODEL_H
#define PREFILL_TRANSLATE_WRITEMODEL_H

#include "mlir/IR/BuiltinOps.h"
#include "prefill/checkpoint/Result.h"

namespace mlir::prefill {

/// Verifies and prints `module` to `path`, or to stdout for "-". A file
/// appears whole or not at all.
::prefill::rt::Result<void> writeModel(ModuleOp module, llvm::StringRef path);

} // namespace mlir::prefill

#endif // PREFILL_TRANSLATE_WRITEMODEL_H
