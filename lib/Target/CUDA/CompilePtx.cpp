//===- CompilePtx.cpp - the NVVM form to PTX ------------------------------===//
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "prefill/Codegen/CUDA/LaunchAttributes.h"
#include "prefill/Target/CUDA/CompileCudaObject.h"
#include "prefill/Target/OptimizeModule.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"

using namespace mlir;
using namespace mlir::prefill;

/// Addresses of shared memory in 32 bits: half the registers. LLVM has an
/// option of its command line for it and nothing else.
static void useShortPointers() {
  auto &options = llvm::cl::getRegisteredOptions();
  if (auto option = options.find("nvptx-short-ptr"); option != options.end())
    option->second->addOccurrence(0, "nvptx-short-ptr", "true");
}

static std::unique_ptr<llvm::TargetMachine>
createTargetMachine(const CudaChip &chip, std::string &error) {
  static bool initialized = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    useShortPointers();
    return true;
  }();
  (void)initialized;
  llvm::Triple triple("nvptx64-nvidia-cuda");
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  // By default a multiply and an add are not fused unless the kernel says so:
  // the device does the operations that the emulator does.
  llvm::TargetOptions options;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, chip.name, "+ptx" + std::to_string(chip.ptxVersion), options,
      std::nullopt, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

/// What the assembler is told of the threads in a block. It gives a thread as
/// many registers as a block of that size allows, but fewer than it needs where
/// the size is no power of two (56 and a spill for 96 threads, 60 for 128).
static int64_t mostThreads(int64_t threads) {
  constexpr int64_t allRegisters = 256; // threads that may have 255 each
  auto rounded = int64_t(llvm::PowerOf2Ceil(uint64_t(threads)));
  return rounded <= allRegisters ? rounded : threads;
}

static void stateBlockSizes(ModuleOp kernels) {
  OpBuilder builder(kernels.getContext());
  for (auto kernel : kernels.getOps<LLVM::LLVMFuncOp>()) {
    auto threads = kernel->getAttrOfType<IntegerAttr>(kBlockThreadsAttr);
    // The assembler takes one of both, and nvvm.reqntid says the same.
    if (!threads || kernel->hasAttr(NVVM::NVVMDialect::getReqntidAttrName()))
      continue;
    kernel->setAttr(
        NVVM::NVVMDialect::getMaxntidAttrName(),
        builder.getDenseI32ArrayAttr({int32_t(mostThreads(threads.getInt()))}));
    // Of blocks of one warp it wants a dozen on an SM, and spills attention's
    // sums for that; one is what the tile tables count on.
    if (threads.getInt() <= kWarpThreads)
      kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                      builder.getI32IntegerAttr(1));
  }
}

FailureOr<std::string> prefill::compilePtx(ModuleOp kernels,
                                           const CudaChip &chip) {
  OwningOpRef<ModuleOp> copy(kernels.clone());
  stateBlockSizes(*copy);
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module =
      translateModuleToLLVMIR(*copy, context, "prefill_kernels");
  if (!module)
    return kernels.emitError("kernels could not be translated to LLVM IR"),
           failure();
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine =
      createTargetMachine(chip, error);
  if (!machine)
    return kernels.emitError("no LLVM target for ")
               << chip.name << ": " << error,
           failure();
  module->setDataLayout(machine->createDataLayout());
  module->setTargetTriple(machine->getTargetTriple());
  optimizeModule(*module, *machine);

  llvm::SmallVector<char, 0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, stream, nullptr,
                                   llvm::CodeGenFileType::AssemblyFile))
    return kernels.emitError("LLVM cannot emit PTX for ") << chip.name,
           failure();
  codegen.run(*module);
  return std::string(text.begin(), text.end());
}
