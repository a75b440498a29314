//===- ConvertToCUDAKernels.cpp - tiled kernels to CUDA threads -----------===//
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "prefill/Codegen/CUDA/EmitKernels.h"
#include "prefill/Conversion/KernelContract.h"
#include "prefill/Conversion/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_CONVERTTOCUDAKERNELSPASS
#include "prefill/Conversion/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

static LogicalResult emitKernel(KernelFrame &frame, const CudaChip &chip,
                                func::FuncOp tiled) {
  FailureOr<KernelKind> kind = findKernelKind(tiled, "cuda");
  if (failed(kind))
    return failure();
  switch (*kind) {
  case KernelKind::Gemm:
    return emitGemmKernel(frame, chip, tiled);
  case KernelKind::Rowwise:
    return emitRowwiseKernel(frame, chip, tiled);
  case KernelKind::Attention:
    return emitAttentionKernel(frame, chip, tiled);
  }
  llvm_unreachable("unknown kind of kernel");
}

/// What no tile table may pass over: the launch would fail.
static LogicalResult verifyLimits(const KernelFrame &frame,
                                  const CudaChip &chip, func::FuncOp tiled) {
  int64_t bytes = frame.shared.used(), threads = frame.blockThreads;
  if (bytes > chip.sharedPerBlock)
    return tiled.emitError()
           << "kernel " << tiled.getSymName() << " needs " << bytes
           << " bytes of shared memory for its tiles; a block has at most "
           << chip.sharedPerBlock << " on target cuda:" << chip.name;
  if (threads < kWarpThreads || threads > kMaxBlockThreads ||
      threads % kWarpThreads != 0)
    return tiled.emitError()
           << "kernel " << tiled.getSymName() << " has " << threads
           << " threads a block; expected a multiple of " << kWarpThreads
           << " up to " << kMaxBlockThreads;
  return success();
}

namespace {
struct ConvertToCUDAKernelsPass
    : prefill::impl::ConvertToCUDAKernelsPassBase<ConvertToCUDAKernelsPass> {
  using ConvertToCUDAKernelsPassBase::ConvertToCUDAKernelsPassBase;

  void runOnOperation() override {
    const CudaChip *target = lookupCudaChip(chip);
    if (!target) {
      getOperation().emitError()
          << "unknown chip '" << chip << "'; valid are " << cudaChipNames();
      return signalPassFailure();
    }
    SmallVector<func::FuncOp> kernels;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(kKernelAttr))
        kernels.push_back(function);
    // Every kernel is tried, so that all refusals are known.
    for (func::FuncOp tiled : kernels) {
      FailureOr<KernelFrame> frame = KernelFrame::create(tiled);
      if (failed(frame)) {
        signalPassFailure();
        continue;
      }
      if (failed(emitKernel(*frame, *target, tiled)) ||
          failed(verifyLimits(*frame, *target, tiled))) {
        frame->abandon();
        signalPassFailure();
        continue;
      }
      sharedBytes += frame->shared.used();
      frame->finish(tiled);
      ++numKernels;
    }
  }
};
} // namespace
