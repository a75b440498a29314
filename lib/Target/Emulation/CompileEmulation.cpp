//===- CompileEmulation.cpp - NVVM kernels to an x86-64 shared object -----===//
#include "prefill/Target/Emulation/CompileEmulation.h"
#include "SiteTable.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Verifier.h"
#include "prefill/Target/CPU/CompileObject.h"

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::emulation;

/// Threads of a block and bytes of shared memory that a device may offer.
static constexpr int64_t maxThreads = 1024, maxSharedBytes = 227 << 10;

static FailureOr<Kernel> describe(LLVM::LLVMFuncOp func) {
  Kernel kernel;
  kernel.name = func.getName().str();
  kernel.words = func.getNumArguments();
  auto attribute = [&](StringRef name, int64_t low, int64_t high,
                       int64_t &value) -> LogicalResult {
    auto attr = func->getAttrOfType<IntegerAttr>(name);
    if (!attr)
      return func.emitError("kernel ") << kernel.name << " has no " << name;
    value = attr.getInt();
    if (value < low || value > high)
      return func.emitError("kernel ")
             << kernel.name << ": " << name << " is " << value << " (expected "
             << low << " to " << high << ")";
    return success();
  };
  if (failed(attribute(kBlockThreadsAttr, 1, maxThreads, kernel.threads)) ||
      failed(
          attribute(kSharedBytesAttr, 0, maxSharedBytes, kernel.sharedBytes)))
    return failure();
  for (Type type : func.getArgumentTypes())
    if (!type.isInteger(64) && !isa<LLVM::LLVMPointerType>(type))
      return func.emitError("kernel ")
             << kernel.name << " has a parameter of type " << type
             << " (expected i64 or a pointer: one word each)";
  if (!isa<LLVM::LLVMVoidType>(func.getFunctionType().getReturnType()))
    return func.emitError("kernel ") << kernel.name << " returns a value";
  return kernel;
}

static LogicalResult enter(Operation &op, Manifest &manifest) {
  if (auto global = dyn_cast<LLVM::GlobalOp>(op)) {
    auto array = dyn_cast<LLVM::LLVMArrayType>(global.getGlobalType());
    if (global.getSymName() != kSharedWindowSymbol ||
        global.getAddrSpace() != 3 || !array || array.getNumElements() != 0)
      return op.emitError("the emulator does not know the global ")
             << global.getSymName() << " (expected only @"
             << kSharedWindowSymbol
             << ", an array of no elements in address space 3)";
    return success();
  }
  auto func = dyn_cast<LLVM::LLVMFuncOp>(op);
  if (!func || func.isExternal() ||
      !func->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName()))
    return op.emitError("the emulator does not know ")
           << op.getName() << " outside of kernels";
  FailureOr<Kernel> kernel = describe(func);
  if (failed(kernel))
    return failure();
  kernel->firstSite = int64_t(manifest.sites.size());
  if (failed(addSites(func, manifest)))
    return failure();
  kernel->numSites = int64_t(manifest.sites.size()) - kernel->firstSite;
  markControlDependence(func, manifest, *kernel);
  manifest.kernels.push_back(std::move(*kernel));
  return success();
}

FailureOr<llvm::SmallVector<char, 0>>
mlir::prefill::compileEmulation(Operation *kernels) {
  OpBuilder builder(kernels->getContext());
  OwningOpRef<ModuleOp> module = ModuleOp::create(kernels->getLoc());
  builder.setInsertionPointToEnd(module->getBody());
  for (Operation &op : kernels->getRegion(0).front())
    if (!op.hasTrait<OpTrait::IsTerminator>())
      builder.clone(op);

  Manifest manifest;
  for (Operation &op : *module->getBody())
    if (failed(enter(op, manifest)))
      return failure();
  if (manifest.kernels.empty())
    return kernels->emitError("module holds no kernel (an llvm.func with ")
           << NVVM::NVVMDialect::getKernelFuncAttrName() << ")";
  if (manifest.sites.size() > UINT16_MAX)
    return kernels->emitError("kernels have ")
           << manifest.sites.size() << " watched operations (expected at most "
           << UINT16_MAX << ")";
  if (failed(instrumentKernels(*module, manifest)) || failed(verify(*module)))
    return failure();
  // Not the host's newest instructions: bf16 and approximations are to be the
  // same everywhere.
  // LLVM's optimisations would take longer than they save in a test's calls.
  auto object = emitObject(*module, {"x86-64-v3", "", /*optimize=*/false});
  if (failed(object))
    return failure();
  return linkSharedObject(*object, "prefill-emulation", kernels->getLoc());
}
