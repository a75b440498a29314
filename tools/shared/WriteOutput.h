//===- WriteOutput.h - a tool's output file ---------------------*- C++ -*-===//
#ifndef PREFILL_TOOLS_SHARED_WRITEOUTPUT_H
#define PREFILL_TOOLS_SHARED_WRITEOUTPUT_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

namespace mlir::prefill {

/// Lets `write` fill the file at `path` ("-": stdout). A regular file is
/// replaced only once everything is written, so that a failure leaves nothing
/// half done; a symbolic link's target is replaced, not the link; a device or a
/// pipe is written to directly. The error says what the system said.
llvm::Error writeOutput(llvm::StringRef path,
                        llvm::function_ref<void(llvm::raw_ostream &)> write);

} // namespace mlir::prefill

#endif // PREFILL_TOOLS_SHARED_WRITEOUTPUT_H
