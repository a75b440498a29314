//===- CompileObject.cpp - LLVM dialect to a relocatable object -----------===//
#include "prefill/Target/CPU/CompileObject.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "prefill/Target/OptimizeModule.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"

using namespace mlir;
using namespace mlir::prefill;

/// A machine for position-independent code: the JIT's own defaults would leave
/// text relocations in a shared object.
static std::unique_ptr<llvm::TargetMachine>
createTargetMachine(const CpuTarget &target, std::string &error) {
  static bool initialized = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    return true;
  }();
  (void)initialized;
  llvm::Triple triple("x86_64-unknown-linux-gnu");
  const llvm::Target *llvmTarget =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!llvmTarget)
    return nullptr;
  llvm::TargetOptions options;
  return std::unique_ptr<llvm::TargetMachine>(llvmTarget->createTargetMachine(
      triple, target.cpu, target.features, options, llvm::Reloc::PIC_,
      llvm::CodeModel::Small,
      target.optimize ? llvm::CodeGenOptLevel::Aggressive
                      : llvm::CodeGenOptLevel::None));
}

void mlir::prefill::loadDialectsOfObjects(MLIRContext &context) {
  PassManager pm(&context, ModuleOp::getOperationName());
  buildKernelToLLVMPipeline(pm);
  DialectRegistry needed;
  pm.getDependentDialects(needed);
  context.appendDialectRegistry(needed);
  for (StringRef name : needed.getDialectNames())
    context.getOrLoadDialect(name);
}

FailureOr<llvm::SmallVector<char, 0>>
mlir::prefill::compileObject(ModuleOp kernels, const CpuTarget &target) {
  OwningOpRef<ModuleOp> module(kernels.clone());
  PassManager pm(module->getContext(), ModuleOp::getOperationName());
  buildKernelToLLVMPipeline(pm);
  if (failed(pm.run(*module)) || failed(addKernelEntries(*module)))
    return failure();
  return emitObject(*module, target);
}

FailureOr<llvm::SmallVector<char, 0>>
mlir::prefill::emitObject(ModuleOp kernels, const CpuTarget &target) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(kernels, context, "prefill_kernels");
  if (!llvmModule)
    return kernels.emitError("kernels could not be translated to LLVM IR"),
           failure();
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine =
      createTargetMachine(target, error);
  if (!machine)
    return kernels.emitError("no LLVM target for ")
               << target.cpu << ": " << error,
           failure();
  llvmModule->setDataLayout(machine->createDataLayout());
  llvmModule->setTargetTriple(machine->getTargetTriple());
  for (llvm::Function &function : *llvmModule) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", target.cpu);
    function.addFnAttr("target-features", target.features);
    function.addFnAttr("prefer-vector-width", "512");
    // Large frames, on the emulator's small stacks: each page is touched in
    // turn, so that none is behind the guard page.
    if (!target.optimize)
      function.addFnAttr("probe-stack", "inline-asm");
  }
  optimizeModule(*llvmModule, *machine,
                 target.optimize ? llvm::OptimizationLevel::O3
                                 : llvm::OptimizationLevel::O0);

  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, stream, nullptr,
                                   llvm::CodeGenFileType::ObjectFile))
    return kernels.emitError("LLVM cannot emit an object file for ")
               << target.cpu,
           failure();
  codegen.run(*llvmModule);
  return object;
}
