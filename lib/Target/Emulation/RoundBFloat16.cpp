//===- RoundBFloat16.cpp - f32 to bf16 in integer arithmetic --------------===//
#include "SiteTable.h"

using namespace mlir;

Value mlir::prefill::emulation::roundToBFloat16(OpBuilder &builder,
                                                Location loc, Value value) {
  auto vector = dyn_cast<VectorType>(value.getType());
  auto shaped = [&](Type element) -> Type {
    return vector ? VectorType::get(vector.getShape(), element) : element;
  };
  Type i32 = builder.getI32Type();
  auto constant = [&](int64_t number) -> Value {
    IntegerAttr scalar = IntegerAttr::get(i32, number);
    TypedAttr attr = scalar;
    if (vector)
      attr = DenseElementsAttr::get(cast<VectorType>(shaped(i32)), scalar);
    return LLVM::ConstantOp::create(builder, loc, shaped(i32), attr);
  };
  Value bits = LLVM::BitcastOp::create(builder, loc, shaped(i32), value);
  Value upper = LLVM::LShrOp::create(builder, loc, bits, constant(16));
  Value odd = LLVM::AndOp::create(builder, loc, upper, constant(1));
  Value bias = LLVM::AddOp::create(builder, loc, odd, constant(0x7fff));
  Value sum = LLVM::AddOp::create(builder, loc, bits, bias);
  Value rounded = LLVM::LShrOp::create(builder, loc, sum, constant(16));
  Value magnitude =
      LLVM::AndOp::create(builder, loc, bits, constant(0x7fffffff));
  Value isNaN = LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::ugt,
                                     magnitude, constant(0x7f800000));
  Value chosen =
      LLVM::SelectOp::create(builder, loc, isNaN, constant(0x7fff), rounded);
  Value narrow =
      LLVM::TruncOp::create(builder, loc, shaped(builder.getI16Type()), chosen);
  return LLVM::BitcastOp::create(builder, loc, shaped(builder.getBF16Type()),
                                 narrow);
}
