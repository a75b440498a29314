//===- CompileCudaObject.cpp - CUDA kernels to PTX and cubin --------------===//
#include "prefill/Target/CUDA/CompileCudaObject.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "prefill/Codegen/CUDA/LaunchAttributes.h"

using namespace mlir;
using namespace mlir::prefill;

FailureOr<CudaObject>
prefill::compileCudaObject(ModuleOp kernels, const CudaChip &chip,
                           const std::optional<std::string> &assembler) {
  FailureOr<std::string> ptx = compilePtx(kernels, chip);
  if (failed(ptx))
    return failure();
  if (!assembler) {
    CudaObject object;
    object.ptx = std::move(*ptx);
    return object;
  }
  FailureOr<CudaObject> object =
      assemble(std::move(*ptx), chip, *assembler, kernels.getLoc());
  if (failed(object))
    return failure();
  for (auto function : kernels.getOps<LLVM::LLVMFuncOp>())
    if (!function.isExternal() &&
        llvm::none_of(object->kernels, [&](const AssembledKernel &kernel) {
          return kernel.name == function.getName();
        }))
      return function.emitError()
             << *assembler << " did not say what kernel '" << function.getName()
             << "' takes on " << chip.name
             << ", expected a line of registers for each kernel";
  for (AssembledKernel &kernel : object->kernels) {
    auto function = kernels.lookupSymbol<LLVM::LLVMFuncOp>(kernel.name);
    auto number = [&](StringRef name) -> int64_t {
      auto attr =
          function ? function->getAttrOfType<IntegerAttr>(name) : IntegerAttr();
      return attr ? attr.getInt() : 0;
    };
    kernel.sharedBytes = number(kSharedBytesAttr);
    int64_t threads = number(kBlockThreadsAttr);
    kernel.residentBlocks =
        blocksPerSM(chip, threads, kernel.sharedBytes, kernel.registers);
    kernel.occupancy =
        occupancy(chip, threads, kernel.sharedBytes, kernel.registers);
  }
  return object;
}
