//===- ConvertTiledBody.cpp - a tiled kernel's loops, for one block -------===//
#include "prefill/Codegen/CUDA/KernelFrame.h"
#include "prefill/Codegen/Common/TiledBody.h"

using namespace mlir;
using namespace mlir::prefill;

LogicalResult prefill::convertTiledBody(
    func::FuncOp tiled, KernelFrame &frame,
    llvm::function_ref<LogicalResult(Operation *, CudaBuilder &, IRMapping &)>
        emitOp) {
  CudaBuilder b = frame.bodyBuilder();
  // The whole block takes the branch, so that barriers may stand in it.
  auto runWorkgroups = [&](OpFoldResult bound,
                           llvm::function_ref<void(Value)> body) {
    Value count = isa<Attribute>(bound) ? b.index(*getConstantIntValue(bound))
                                        : cast<Value>(bound);
    Value workgroup = b.toIndex(b.blockId());
    b.ifThen(b.less(workgroup, count), [&] { body(workgroup); });
  };
  return cloneTiledBody(
      tiled, b,
      {runWorkgroups,
       [&](Value argument) { return frame.tensor(argument).rows; },
       [&](Operation *op, IRMapping &mapping) {
         return emitOp(op, b, mapping);
       }});
}
