//===- WriteModel.cpp - a module as text ----------------------------------===//
#include "WriteModel.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using ::prefill::rt::Error;
using ::prefill::rt::ErrorCode;
using ::prefill::rt::Result;

Result<void> mlir::prefill::writeModel(ModuleOp module, StringRef path) {
  std::string problem;
  {
    ScopedDiagnosticHandler first(module.getContext(),
                                  [&](Diagnostic &diagnostic) {
                                    if (problem.empty())
                                      problem = diagnostic.str();
                                    return success();
                                  });
    if (failed(verify(module)))
      return Error{ErrorCode::unsupported, "the model is invalid: " + problem};
  }

  // writeToOutput renames a finished temporary file.
  llvm::Error failure =
      llvm::writeToOutput(path, [&](llvm::raw_ostream &stream) -> llvm::Error {
        module->print(stream);
        return llvm::Error::success();
      });
  if (failure)
    return Error{ErrorCode::io, "cannot write '" + path.str() +
                                    "': " + llvm::toString(std::move(failure))};
  llvm::outs().flush();
  if (llvm::outs().has_error()) {
    std::string reason = llvm::outs().error().message();
    llvm::outs().clear_error();
    return Error{ErrorCode::io, "cannot write to stdout: " + reason};
  }
  return {};
}
