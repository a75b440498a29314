//===- Tile.cpp - loops over workgroups -----------------------------------===//
#include "prefill/Conversion/KernelTiling.h"
#include "prefill/Conversion/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_TILEPASS
#include "prefill/Conversion/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

SmallVector<Value> prefill::replaceResultsByBuffers(func::FuncOp kernel) {
  SmallVector<Value> buffers;
  for (Type result : kernel.getResultTypes()) {
    auto tensor = dyn_cast<RankedTensorType>(result);
    if (!tensor)
      continue;
    auto type = MemRefType::get(tensor.getShape(), tensor.getElementType());
    unsigned index = kernel.getNumArguments();
    (void)kernel.insertArgument(index, type, {}, kernel.getLoc());
    buffers.push_back(kernel.getArgument(index));
  }
  kernel.getBody().front().getTerminator()->setOperands({});
  kernel.setFunctionType(FunctionType::get(
      kernel.getContext(), kernel.getArgumentTypes(), TypeRange()));
  return buffers;
}

scf::ForallOp prefill::createWorkgroupLoop(OpBuilder &builder, Location loc,
                                           Value count) {
  auto loop = scf::ForallOp::create(builder, loc, {OpFoldResult(count)},
                                    ValueRange(), std::nullopt);
  builder.setInsertionPoint(loop.getTerminator());
  return loop;
}

void prefill::setGrid(func::FuncOp kernel, RowDomain domain, int64_t block,
                      bool plusSequences, int64_t multiplier) {
  kernel->setAttr(kGridAttr, GridAttr::get(kernel.getContext(), domain, block,
                                           plusSequences, multiplier));
}

static LogicalResult tileKernel(func::FuncOp kernel, bool plain) {
  for (Operation &op : kernel.getBody().front()) {
    if (auto gemm = dyn_cast<GemmOp>(op))
      return tileGemm(kernel, gemm, plain);
    if (auto rowwise = dyn_cast<RowwiseOp>(op))
      return tileRowwise(kernel, rowwise, plain);
    if (isa<AttentionOp, OnlineAttentionOp>(op))
      return tileAttention(kernel, &op);
  }
  return kernel.emitError() << "kernel " << kernel.getSymName()
                            << " holds no compute op that can be tiled; "
                               "expected gemm, rowwise or attention";
}

namespace {
struct TilePass : prefill::impl::TilePassBase<TilePass> {
  using TilePassBase::TilePassBase;

  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      if (!kernel->hasAttr(kKernelAttr) || kernel->hasAttr(kGridAttr))
        continue;
      if (failed(tileKernel(kernel, plain)))
        return signalPassFailure();
      ++numKernels;
    }
  }
};
} // namespace
