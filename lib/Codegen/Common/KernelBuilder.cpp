//===- KernelBuilder.cpp - builder with index arithmetic ------------------===//
#include "prefill/Codegen/Common/KernelBuilder.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::prefill;

Value KernelBuilder::index(int64_t value) {
  return arith::ConstantIndexOp::create(*this, value);
}
Value KernelBuilder::constantLike(Value other, int64_t value) {
  return arith::ConstantOp::create(*this,
                                   getIntegerAttr(other.getType(), value));
}
Value KernelBuilder::add(Value lhs, Value rhs) {
  return createOrFold<arith::AddIOp>(lhs, rhs);
}
Value KernelBuilder::add(Value lhs, int64_t rhs) {
  return rhs == 0 ? lhs : add(lhs, constantLike(lhs, rhs));
}
Value KernelBuilder::sub(Value lhs, Value rhs) {
  return createOrFold<arith::SubIOp>(lhs, rhs);
}
Value KernelBuilder::mul(Value lhs, Value rhs) {
  return createOrFold<arith::MulIOp>(lhs, rhs);
}
Value KernelBuilder::mul(Value lhs, int64_t rhs) {
  return rhs == 1 ? lhs : mul(lhs, constantLike(lhs, rhs));
}
Value KernelBuilder::divide(Value lhs, Value rhs) {
  return createOrFold<arith::DivUIOp>(lhs, rhs);
}
Value KernelBuilder::divide(Value lhs, int64_t rhs) {
  return rhs == 1 ? lhs : divide(lhs, constantLike(lhs, rhs));
}
Value KernelBuilder::remainder(Value lhs, Value rhs) {
  return createOrFold<arith::RemUIOp>(lhs, rhs);
}
Value KernelBuilder::remainder(Value lhs, int64_t rhs) {
  return remainder(lhs, constantLike(lhs, rhs));
}
Value KernelBuilder::ceilDivide(Value lhs, int64_t rhs) {
  return divide(add(lhs, rhs - 1), rhs);
}
Value KernelBuilder::min(Value lhs, Value rhs) {
  return createOrFold<arith::MinSIOp>(lhs, rhs);
}
Value KernelBuilder::min(Value lhs, int64_t rhs) {
  return min(lhs, constantLike(lhs, rhs));
}
Value KernelBuilder::max(Value lhs, Value rhs) {
  return createOrFold<arith::MaxSIOp>(lhs, rhs);
}
Value KernelBuilder::compare(arith::CmpIPredicate predicate, Value lhs,
                             Value rhs) {
  return createOrFold<arith::CmpIOp>(predicate, lhs, rhs);
}
Value KernelBuilder::toIndex(Value integer) {
  return createOrFold<arith::IndexCastOp>(getIndexType(), integer);
}

VectorType KernelBuilder::vectorF32(int64_t lanes) {
  return VectorType::get({lanes}, getF32Type());
}
Value KernelBuilder::f32(double value) {
  return arith::ConstantOp::create(*this, getF32FloatAttr(float(value)));
}
Value KernelBuilder::splatF32(double value, int64_t lanes) {
  return arith::ConstantOp::create(
      *this, DenseElementsAttr::get(vectorF32(lanes), float(value)));
}
Value KernelBuilder::splatI32(int64_t value, int64_t lanes) {
  return arith::ConstantOp::create(
      *this, DenseElementsAttr::get(VectorType::get({lanes}, getI32Type()),
                                    int32_t(value)));
}

void KernelBuilder::forLoop(Value begin, Value end, int64_t step,
                            llvm::function_ref<void(Value)> body) {
  forLoop(begin, end, step, {}, [&](Value i, ValueRange) {
    body(i);
    return SmallVector<Value>();
  });
}

SmallVector<Value> KernelBuilder::forLoop(
    Value begin, Value end, int64_t step, ValueRange init,
    llvm::function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  auto loop =
      scf::ForOp::create(*this, begin, end, constantLike(begin, step), init);
  InsertionGuard guard(*this);
  // Without carried values the loop comes with its terminator.
  Block *block = loop.getBody();
  if (init.empty()) {
    setInsertionPoint(block->getTerminator());
    body(loop.getInductionVar(), {});
  } else {
    setInsertionPointToEnd(block);
    SmallVector<Value> next =
        body(loop.getInductionVar(), loop.getRegionIterArgs());
    scf::YieldOp::create(*this, next);
  }
  return SmallVector<Value>(loop.getResults());
}

void KernelBuilder::ifThen(Value condition, llvm::function_ref<void()> body) {
  auto branch = scf::IfOp::create(*this, condition, /*withElseRegion=*/false);
  InsertionGuard guard(*this);
  setInsertionPoint(branch.thenBlock()->getTerminator());
  body();
}

void KernelBuilder::ifThenElse(Value condition, llvm::function_ref<void()> body,
                               llvm::function_ref<void()> otherwise) {
  auto branch = scf::IfOp::create(*this, condition, /*withElseRegion=*/true);
  InsertionGuard guard(*this);
  setInsertionPoint(branch.thenBlock()->getTerminator());
  body();
  setInsertionPoint(branch.elseBlock()->getTerminator());
  otherwise();
}
