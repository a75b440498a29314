//===- InputFile.h - files that a user names --------------------*- C++ -*-===//
#ifndef PREFILL_TRANSLATE_INPUTFILE_H
#define PREFILL_TRANSLATE_INPUTFILE_H

#include "prefill/checkpoint/Result.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace mlir::prefill {

/// Whether `path` can be read to its end: a regular file that exists, or "-"
/// for stdin. A pipe that nobody writes to, or a device without an end, would
/// hold the tool forever.
::prefill::rt::Result<void> checkInputFile(llvm::StringRef path);

/// Text out of a file as printable ASCII: every other byte as \xHH, so that a
/// message stays one line and sends no control sequences to a terminal.
std::string printable(llvm::StringRef text);

} // namespace mlir::prefill

#endif // PREFILL_TRANSLATE_INPUTFILE_H
