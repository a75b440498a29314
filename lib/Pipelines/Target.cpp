//===- Target.cpp - what a model is compiled for --------------------------===//
#include "prefill/Pipelines/Target.h"
#include "prefill/Codegen/CUDA/ChipTable.h"
#include "llvm/Support/Error.h"

using namespace mlir::prefill;

llvm::Expected<CompileTarget>
mlir::prefill::parseCompileTarget(llvm::StringRef name) {
  auto [device, chip] = name.split(':');
  bool emulated = device == "cuda-emu";
  if (name == "cpu")
    return CompileTarget();
  if ((emulated || device == "cuda") && lookupCudaChip(chip))
    return CompileTarget{emulated ? CompileTarget::CudaEmulation
                                  : CompileTarget::Cuda,
                         chip.str()};
  return llvm::createStringError("'" + name.str() +
                                 "', expected cpu, cuda:CHIP or cuda-emu:CHIP "
                                 "with one of the chips " +
                                 cudaChipNames());
}
