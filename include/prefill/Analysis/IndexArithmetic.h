//===- IndexArithmetic.h - the arithmetic of an analysis as IR ------------===//
#ifndef PREFILL_ANALYSIS_INDEXARITHMETIC_H
#define PREFILL_ANALYSIS_INDEXARITHMETIC_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

namespace mlir::prefill {

/// Emits `index` ops at the builder's insertion point, folding constants. The
/// counterpart of IntegerArithmetic in AttentionBlockRange.h.
struct IndexArithmetic {
  using Value = ::mlir::Value;
  OpBuilder &builder;
  Location loc;

  Value constant(int64_t value) {
    return arith::ConstantIndexOp::create(builder, loc, value);
  }
  Value add(Value a, Value b) {
    return builder.createOrFold<arith::AddIOp>(loc, a, b);
  }
  Value sub(Value a, Value b) {
    return builder.createOrFold<arith::SubIOp>(loc, a, b);
  }
  Value mul(Value a, Value b) {
    return builder.createOrFold<arith::MulIOp>(loc, a, b);
  }
  Value min(Value a, Value b) {
    return builder.createOrFold<arith::MinSIOp>(loc, a, b);
  }
  Value max(Value a, Value b) {
    return builder.createOrFold<arith::MaxSIOp>(loc, a, b);
  }
  /// The dividend is not negative, so that the unsigned division serves: it
  /// needs no correction and is a shift for a power of two.
  Value divFloor(Value a, int64_t b) {
    return builder.createOrFold<arith::DivUIOp>(loc, a, constant(b));
  }
  Value divCeil(Value a, int64_t b) {
    return divFloor(add(a, constant(b - 1)), b);
  }
};

} // namespace mlir::prefill

#endif // PREFILL_ANALYSIS_INDEXARITHMETIC_H
