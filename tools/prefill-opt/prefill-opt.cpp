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
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"

/// mlir-opt's behaviour, but a wrong option or file is one `error:` line.
static int mlirOptMain(int argc, char **argv, mlir::DialectRegistry &registry) {
  static llvm::cl::opt<std::string> input(llvm::cl::Positional,
                                          llvm::cl::desc("<input file>"),
                                          llvm::cl::init("-"));
  static llvm::cl::opt<std::string> output(
      "o", llvm::cl::desc("Output filename"), llvm::cl::value_desc("filename"),
      llvm::cl::init("-"));
  std::string header =
      mlir::registerCLIOptions(mlir::prefill::compileDriverUsage(), registry);
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (!llvm::cl::ParseCommandLineOptions(argc, argv, header, &stream)) {
    llvm::StringRef line = llvm::StringRef(problem).trim().split('\n').first;
    line.consume_front(argv[0]);
    line.consume_front(": ");
    llvm::errs() << "error: " << line
                 << " (--help lists the options; passes are options too)\n";
    return 1;
  }
  if (input != "-" && !llvm::sys::fs::exists(input)) {
    llvm::errs() << "error: cannot read '" << input
                 << "': No such file or directory\n";
    return 1;
  }
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, input, output, registry));
}

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
  return mlirOptMain(argc, argv, registry);
}
