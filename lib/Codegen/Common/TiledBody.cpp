//===- TiledBody.cpp - a tiled kernel's loops, for one target -------------===//
#include "prefill/Codegen/Common/TiledBody.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

class BodyCloner {
public:
  BodyCloner(KernelBuilder &b, const TiledBodyTarget &target)
      : b(b), target(target) {}

  LogicalResult cloneBlock(Block &block) {
    for (Operation &op : block.without_terminator())
      if (failed(clone(op)))
        return failure();
    return success();
  }

private:
  LogicalResult clone(Operation &op) {
    b.setLoc(op.getLoc());
    if (auto forall = dyn_cast<scf::ForallOp>(op))
      return cloneForall(forall);
    if (isa<tensor::DimOp, memref::DimOp>(op))
      return cloneDim(op);
    if (isa<PrefillDialect>(op.getDialect()))
      return target.emitOp(&op, mapping);
    if (!isa<arith::ArithDialect, scf::SCFDialect>(op.getDialect()))
      return op.emitError() << "has no form at level kernel";
    Operation *copy = b.cloneWithoutRegions(op, mapping);
    for (auto [from, to] : llvm::zip(op.getRegions(), copy->getRegions()))
      for (Block &block : from)
        if (failed(cloneNested(block, to)))
          return failure();
    return success();
  }

  LogicalResult cloneNested(Block &block, Region &into) {
    OpBuilder::InsertionGuard guard(b);
    Block *copy = b.createBlock(&into);
    for (BlockArgument argument : block.getArguments())
      mapping.map(argument,
                  copy->addArgument(argument.getType(), argument.getLoc()));
    b.setInsertionPointToEnd(copy);
    if (failed(cloneBlock(block)))
      return failure();
    b.clone(*block.getTerminator(), mapping);
    return success();
  }

  LogicalResult cloneForall(scf::ForallOp forall) {
    if (forall.getRank() != 1 || !forall.isNormalized() ||
        forall.getNumResults() != 0)
      return forall.emitError()
             << "a kernel's workgroups are one loop from 0 with step 1";
    OpFoldResult count = forall.getMixedUpperBound()[0];
    if (auto value = dyn_cast<Value>(count))
      count = mapping.lookup(value);
    LogicalResult result = success();
    target.runWorkgroups(count, [&](Value workgroup) {
      mapping.map(forall.getInductionVar(0), workgroup);
      result = cloneBlock(*forall.getBody());
    });
    return result;
  }

  LogicalResult cloneDim(Operation &op) {
    Value rows = target.rowsOf(op.getOperand(0));
    IntegerAttr dim;
    if (!rows || !matchPattern(op.getOperand(1), m_Constant(&dim)) ||
        dim.getInt() != 0)
      return op.emitError() << "only the row count of an argument is known";
    mapping.map(op.getResult(0), rows);
    return success();
  }

  KernelBuilder &b;
  const TiledBodyTarget &target;
  IRMapping mapping;
};

} // namespace

LogicalResult prefill::cloneTiledBody(func::FuncOp tiled, KernelBuilder &b,
                                      const TiledBodyTarget &target) {
  return BodyCloner(b, target).cloneBlock(tiled.getBody().front());
}
