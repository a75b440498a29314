//===- prefill-lsp-server.cpp - the language server for editors -----------===//
// Go-to-definition, hover and diagnostics for .mlir files with prefill ops.
//===----------------------------------------------------------------------===//

#include "mlir/IR/Dialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/InitAllDialects.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  registry.insert<mlir::prefill::PrefillDialect>();
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
