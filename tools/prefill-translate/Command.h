//===- Command.h - what prefill-translate can do ----------------*- C++ -*-===//
// Each command is one file with one entry of the table in
// prefill-translate.cpp.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TRANSLATE_COMMAND_H
#define PREFILL_TRANSLATE_COMMAND_H

#include "prefill/checkpoint/Result.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <map>
#include <optional>
#include <string>

namespace mlir::prefill {

/// An option that a command takes.
struct OptionSpec {
  const char *name;  ///< "--layers"
  const char *value; ///< what --help calls the value; nullptr: a flag
  const char *help;
};

/// Parsed options by name; a flag's value is empty. Of an option given twice
/// the last value holds.
using OptionValues = std::map<std::string, std::string, std::less<>>;

struct Command {
  /// The option that selects the command; its value, if it has one, is in the
  /// values too.
  OptionSpec selector;
  /// The further options.
  llvm::ArrayRef<OptionSpec> options;
  /// Does the work. What it returns as an error is printed as the one line
  /// `error: ...`.
  ::prefill::rt::Result<void> (*run)(const OptionValues &values);
};

/// A whole decimal number, or an error that names `option`.
::prefill::rt::Result<int64_t> parseInteger(llvm::StringRef option,
                                            llvm::StringRef value);

::prefill::rt::Result<void> runImportHuggingFace(const OptionValues &values);
::prefill::rt::Result<void> runSynthesize(const OptionValues &values);
::prefill::rt::Result<void> runInterpret(const OptionValues &values);

} // namespace mlir::prefill

#endif // PREFILL_TRANSLATE_COMMAND_H
