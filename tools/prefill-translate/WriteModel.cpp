//===- WriteModel.cpp - a module as text ----------------------------------===//
#include "WriteModel.h"
#include "../shared/WriteOutput.h"
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

  if (llvm::Error failure = writeOutput(
          path, [&](llvm::raw_ostream &stream) { module->print(stream); }))
    return Error{ErrorCode::io,
                 "cannot write " +
                     (path == "-" ? "to stdout" : "'" + path.str() + "'") +
                     ": " + llvm::toString(std::move(failure))};
  return {};
}
