//===- KernelMerging.cpp - one set of kernels for several plans -----------===//
#include "prefill/Dialect/Prefill/Transforms/KernelMerging.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace mlir::prefill;

std::string prefill::kernelText(func::FuncOp kernel) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  kernel.getFunctionType().print(stream);
  OpPrintingFlags flags;
  flags.printGenericOpForm().useLocalScope();
  for (Operation &op : kernel.getBody().front())
    op.print(stream, flags);
  return text;
}

static auto kernelsOf(ModuleOp module) {
  return llvm::make_filter_range(
      module.getOps<func::FuncOp>(),
      [](func::FuncOp function) { return function->hasAttr(kKernelAttr); });
}

void prefill::mergeKernels(ModuleOp all, ModuleOp other, StringRef suffix) {
  SymbolTable symbols(all);
  llvm::StringMap<StringAttr> known; // by text
  for (func::FuncOp kernel : kernelsOf(all))
    known[kernelText(kernel)] = kernel.getSymNameAttr();
  DenseMap<StringAttr, StringAttr> renamed;
  for (func::FuncOp kernel : kernelsOf(other)) {
    auto [found, isNew] = known.try_emplace(kernelText(kernel), StringAttr());
    if (isNew) {
      func::FuncOp copy = kernel.clone();
      copy.setSymName((kernel.getSymName() + suffix).str());
      symbols.insert(copy); // renames it when another kernel has the name
      found->second = copy.getSymNameAttr();
    }
    renamed[kernel.getSymNameAttr()] = found->second;
  }
  // All at once: a new name may be another's old one.
  for (func::FuncOp kernel : kernelsOf(other))
    kernel.setSymNameAttr(renamed.lookup(kernel.getSymNameAttr()));
  other.walk([&](LaunchOp launch) {
    launch.setKernelAttr(FlatSymbolRefAttr::get(
        renamed.lookup(launch.getKernelAttr().getAttr())));
  });
}

static std::string launchesOf(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  OpPrintingFlags flags;
  flags.useLocalScope();
  module.lookupSymbol<func::FuncOp>(kEntryName).print(stream, flags);
  return text;
}

bool prefill::haveSameLaunches(ModuleOp a, ModuleOp b) {
  return launchesOf(a) == launchesOf(b);
}
