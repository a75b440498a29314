//===- CompileCudaObject.h - CUDA kernels to PTX and cubin ------*- C++ -*-===//
//
// Input: the NVVM form (KernelToNVVM.h): llvm.func's with `nvvm.kernel` and the
// attributes of Codegen/CUDA/LaunchAttributes.h.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TARGET_CUDA_COMPILECUDAOBJECT_H
#define PREFILL_TARGET_CUDA_COMPILECUDAOBJECT_H

#include "mlir/IR/BuiltinOps.h"
#include "prefill/Codegen/CUDA/ChipTable.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"
#include <optional>
#include <string>
#include <vector>

namespace mlir::prefill {

/// What the assembler says of a kernel.
struct AssembledKernel {
  std::string name;
  int64_t registers = 0;      ///< for each thread
  int64_t spillBytes = 0;     ///< stores and loads, for each thread
  int64_t sharedBytes = 0;    ///< static ones and the window
  int64_t residentBlocks = 0; ///< that share an SM
  double occupancy = 0;       ///< resident warps over the most that an SM holds
};

struct CudaObject {
  std::string ptx;
  llvm::SmallVector<char, 0> cubin;     ///< empty without an assembler
  std::vector<AssembledKernel> kernels; ///< likewise
};

/// The NVPTX backend's text of a copy of `kernels`. Emits an error on failure.
FailureOr<std::string> compilePtx(ModuleOp kernels, const CudaChip &chip);

/// The path of ptxas: in PATH, or where CUDA's packages put it. Nothing when
/// there is none.
std::optional<std::string> findAssembler();

/// What ptxas -v printed: registers and spills by kernel. A line that it should
/// print and does not is an error that names it.
llvm::Expected<std::vector<AssembledKernel>>
parseAssemblerReport(llvm::StringRef report);

/// Runs the assembler over `ptx`; `loc` is that of errors. sharedBytes and
/// occupancy are left 0.
FailureOr<CudaObject> assemble(std::string ptx, const CudaChip &chip,
                               llvm::StringRef assembler, Location loc);

/// PTX of all kernels for `chip`, and with an `assembler` its cubin and what it
/// says of them.
FailureOr<CudaObject>
compileCudaObject(ModuleOp kernels, const CudaChip &chip,
                  const std::optional<std::string> &assembler);

} // namespace mlir::prefill

#endif // PREFILL_TARGET_CUDA_COMPILECUDAOBJECT_H
