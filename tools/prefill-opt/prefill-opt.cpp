//===- prefill-opt.cpp - the compiler's driver
//------------------------------===//
// Everything of mlir-opt; `--compile`, `--compile-to` and `--explain` run the
// whole pipeline (CompileDriver.h).
//===----------------------------------------------------------------------===//
#include "CompileDriver.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "prefill/Conversion/Passes.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::registerAllToLLVMIRTranslations(registry);
  mlir::registerAllPasses();
  registry.insert<mlir::prefill::PrefillDialect>();
  mlir::prefill::registerPrefillPasses();
  mlir::prefill::registerPrefillConversionPasses();
  if (mlir::prefill::wantsCompileDriver(argc, argv))
    return mlir::prefill::compileDriverMain(argc, argv, registry);
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Prefill compiler\n", registry));
}
