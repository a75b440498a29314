//===- KernelContract.cpp - what kernels of all levels promise ------------===//
#include "prefill/Conversion/KernelContract.h"

using namespace mlir;
using namespace mlir::prefill;

LogicalResult prefill::verifyKernelFunction(func::FuncOp kernel) {
  auto fail = [&] {
    return emitError(kernel.getLoc()) << "kernel " << kernel.getSymName();
  };
  if (kernel.isExternal())
    return fail() << " has no body";
  if (kernel.getNumResults() != 0)
    return fail() << " has results of type (" << kernel.getResultTypes()
                  << "), expected none: a kernel stores into its arguments";
  if (!kernel->hasAttr(kGridAttr))
    return fail() << " has no " << kGridAttr
                  << ", which says how many workgroups run it";
  return success();
}

FailureOr<KernelKind> prefill::findKernelKind(func::FuncOp tiled,
                                              StringRef target) {
  std::optional<KernelKind> kind;
  tiled.walk([&](Operation *op) {
    if (isa<GemmOp>(op))
      kind = KernelKind::Gemm;
    else if (isa<RowwiseOp>(op))
      kind = KernelKind::Rowwise;
    else if (isa<OnlineAttentionOp, MaterializedAttentionOp>(op))
      kind = KernelKind::Attention;
    return kind ? WalkResult::interrupt() : WalkResult::advance();
  });
  if (!kind)
    return tiled.emitError()
           << "kernel " << tiled.getSymName()
           << " holds no compute op that target " << target
           << " can emit; expected gemm, rowwise or attention";
  return *kind;
}
