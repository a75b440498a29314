//===- ConvertToCPUKernels.cpp - tiled kernels to x86-64 vectors ----------===//
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "prefill/Codegen/CPU/EmitKernels.h"
#include "prefill/Conversion/KernelContract.h"
#include "prefill/Conversion/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_CONVERTTOCPUKERNELSPASS
#include "prefill/Conversion/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

static LogicalResult emitKernel(KernelABI &abi, const CpuIsa &isa,
                                func::FuncOp tiled) {
  FailureOr<KernelKind> kind = findKernelKind(tiled, "cpu");
  if (failed(kind))
    return failure();
  switch (*kind) {
  case KernelKind::Gemm:
    return emitGemmKernel(abi, isa, tiled);
  case KernelKind::Rowwise:
    return emitRowwiseKernel(abi, isa, tiled);
  case KernelKind::Attention:
    return emitAttentionKernel(abi, isa, tiled);
  }
  llvm_unreachable("unknown kind of kernel");
}

namespace {
struct ConvertToCPUKernelsPass
    : prefill::impl::ConvertToCPUKernelsPassBase<ConvertToCPUKernelsPass> {
  using ConvertToCPUKernelsPassBase::ConvertToCPUKernelsPassBase;

  void runOnOperation() override {
    const CpuIsa *variant = lookupCpuIsa(isa);
    if (!variant) {
      getOperation().emitError()
          << "unknown isa '" << isa << "'; valid are " << cpuIsaNames();
      return signalPassFailure();
    }
    SmallVector<func::FuncOp> kernels;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(kKernelAttr))
        kernels.push_back(function);
    bool padRows = getOperation()->hasAttr(kPadRowsAttr);
    // Every kernel is tried, so that all refusals are known.
    for (func::FuncOp tiled : kernels) {
      FailureOr<KernelABI> abi = KernelABI::create(tiled, padRows);
      if (failed(abi)) {
        signalPassFailure();
        continue;
      }
      if (failed(emitKernel(*abi, *variant, tiled))) {
        abi->getFunction().erase();
        signalPassFailure();
        continue;
      }
      scratchBytes += abi->scratchBytes();
      abi->finish(tiled);
      ++numKernels;
    }
  }
};
} // namespace
