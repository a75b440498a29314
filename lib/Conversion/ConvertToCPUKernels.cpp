//===- ConvertToCPUKernels.cpp - tiled kernels to x86-64 vectors ----------===//
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "prefill/Codegen/CPU/EmitKernels.h"
#include "prefill/Conversion/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_CONVERTTOCPUKERNELSPASS
#include "prefill/Conversion/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

template <typename OpTy> static bool contains(func::FuncOp kernel) {
  return kernel.walk([](OpTy) { return WalkResult::interrupt(); })
      .wasInterrupted();
}

static LogicalResult emitKernel(KernelABI &abi, const CpuIsa &isa,
                                func::FuncOp tiled) {
  if (contains<GemmOp>(tiled))
    return emitGemmKernel(abi, isa, tiled);
  if (contains<RowwiseOp>(tiled))
    return emitRowwiseKernel(abi, isa, tiled);
  if (contains<OnlineAttentionOp>(tiled) ||
      contains<MaterializedAttentionOp>(tiled))
    return emitAttentionKernel(abi, isa, tiled);
  return tiled.emitError() << "kernel " << tiled.getSymName()
                           << " holds no compute op that target cpu can emit; "
                              "expected gemm, rowwise or attention";
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
    // Every kernel is tried, so that all refusals are known.
    for (func::FuncOp tiled : kernels) {
      FailureOr<KernelABI> abi = KernelABI::create(tiled);
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
