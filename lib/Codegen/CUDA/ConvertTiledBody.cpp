//===- ConvertTiledBody.cpp - a tiled kernel's loops, for one block -------===//
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "prefill/Codegen/CUDA/KernelFrame.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

class BodyConverter {
public:
  using EmitOp = llvm::function_ref<LogicalResult(Operation *, CudaBuilder &,
                                                  IRMapping &)>;
  BodyConverter(KernelFrame &frame, EmitOp emitOp)
      : frame(frame), emitOp(emitOp), b(frame.bodyBuilder()) {}

  LogicalResult convertBlock(Block &block) {
    for (Operation &op : block.without_terminator())
      if (failed(convert(op)))
        return failure();
    return success();
  }

private:
  LogicalResult convert(Operation &op) {
    b.setLoc(op.getLoc());
    if (auto forall = dyn_cast<scf::ForallOp>(op))
      return convertForall(forall);
    if (isa<tensor::DimOp, memref::DimOp>(op))
      return convertDim(op);
    if (isa<PrefillDialect>(op.getDialect()))
      return emitOp(&op, b, mapping);
    if (!isa<arith::ArithDialect, scf::SCFDialect, affine::AffineDialect>(
            op.getDialect()))
      return op.emitError() << "has no form at level kernel";
    Operation *clone = b.cloneWithoutRegions(op, mapping);
    for (auto [from, to] : llvm::zip(op.getRegions(), clone->getRegions()))
      for (Block &block : from)
        if (failed(convertNested(block, to)))
          return failure();
    return success();
  }

  LogicalResult convertNested(Block &block, Region &into) {
    OpBuilder::InsertionGuard guard(b);
    Block *copy = b.createBlock(&into);
    for (BlockArgument argument : block.getArguments())
      mapping.map(argument,
                  copy->addArgument(argument.getType(), argument.getLoc()));
    b.setInsertionPointToEnd(copy);
    if (failed(convertBlock(block)))
      return failure();
    b.clone(*block.getTerminator(), mapping);
    return success();
  }

  /// The whole block takes the branch, so that barriers may stand in it.
  LogicalResult convertForall(scf::ForallOp forall) {
    if (forall.getRank() != 1 || !forall.isNormalized() ||
        forall.getNumResults() != 0)
      return forall.emitError()
             << "a kernel's workgroups are one loop from 0 with step 1";
    OpFoldResult bound = forall.getMixedUpperBound()[0];
    Value count = isa<Attribute>(bound) ? b.index(*getConstantIntValue(bound))
                                        : mapping.lookup(cast<Value>(bound));
    Value workgroup = b.toIndex(b.blockId());
    mapping.map(forall.getInductionVar(0), workgroup);
    LogicalResult result = success();
    b.ifThen(b.less(workgroup, count),
             [&] { result = convertBlock(*forall.getBody()); });
    return result;
  }

  LogicalResult convertDim(Operation &op) {
    Value rows = frame.tensor(op.getOperand(0)).rows;
    IntegerAttr dim;
    if (!rows || !matchPattern(op.getOperand(1), m_Constant(&dim)) ||
        dim.getInt() != 0)
      return op.emitError() << "only the row count of an argument is known";
    mapping.map(op.getResult(0), rows);
    return success();
  }

  KernelFrame &frame;
  EmitOp emitOp;
  CudaBuilder b;
  IRMapping mapping;
};

} // namespace

LogicalResult prefill::convertTiledBody(
    func::FuncOp tiled, KernelFrame &frame,
    llvm::function_ref<LogicalResult(Operation *, CudaBuilder &, IRMapping &)>
        emitOp) {
  return BodyConverter(frame, emitOp).convertBlock(tiled.getBody().front());
}
