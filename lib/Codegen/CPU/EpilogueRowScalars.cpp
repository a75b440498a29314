//===- EpilogueRowScalars.cpp - nodes that are one value for a row --------===//
#include "Epilogue.h"
#include "Int8Rows.h"
#include "VectorMemory.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/VectorMath.h"

using namespace mlir;
using namespace mlir::prefill;

void EpilogueEmitter::computeRowScalar(Operation *op) {
  if (rowScalars.contains(op))
    return;
  Value scalar;
  if (auto scale = dyn_cast<RowRMSScaleOp>(op)) {
    scalar = computeRowRMSScale(scale);
  } else if (auto norm = dyn_cast<RMSNormOp>(op); norm && !norm.getHeadDim()) {
    scalar = computeRMS(norm);
  } else if (auto dequantize = dyn_cast<DequantizeOp>(op)) {
    scalar = memref::LoadOp::create(b, abi.view(dequantize.getRowScale()),
                                    ValueRange{row, b.index(0)});
  } else if (isa<EmbedOp>(op)) {
    scalar = b.toIndex(memref::LoadOp::create(b, abi.batch().tokens, row));
  } else if (isa<SelectRowsOp>(op)) {
    scalar =
        b.toIndex(memref::LoadOp::create(b, abi.batch().logitsIndices, row));
  } else if (isa<RopeOp>(op)) {
    scalar = b.toIndex(memref::LoadOp::create(b, abi.batch().positions, row));
  } else {
    return;
  }
  rowScalars[op] = scalar;
}

/// Where the row's keys and values go; slot -1 writes nothing.
void EpilogueEmitter::computeSlot(Value cache) {
  if (slots.contains(cache))
    return;
  Value slot =
      b.toIndex(memref::LoadOp::create(b, abi.batch().slotMapping, row));
  Value valid = b.compare(arith::CmpIPredicate::sge, slot, b.index(0));
  slots[cache] = {valid, slot, abi.cache(cache).slotOffset(b, slot)};
}

/// Scale of the row and its inverse: the largest magnitude becomes 127. A row
/// next to nothing is zeros, since the inverse would be infinite.
void EpilogueEmitter::computeQuantization(QuantizeRowsOp op) {
  if (quantizations.contains(op))
    return;
  int64_t columns = cast<ShapedType>(op.getInput().getType()).getDimSize(1);
  auto ints = VectorType::get({cpu.lanes}, b.getI32Type());
  Value none = b.splatI32(0, cpu.lanes);
  // Bits of magnitudes are ordered like them, NaN above all. The sign is
  // shifted out: clearing it would be LLVM's fabs, which takes vectors of bf16
  // apart.
  Value largest = forRange(
      b.index(0), b.index(columns), columns, {none},
      [&](const Position &at, ValueRange carried) {
        Value bits =
            vector::BitCastOp::create(b, ints, evaluate(op.getInput(), at));
        bits = arith::ShLIOp::create(b, bits, b.splatI32(1, cpu.lanes));
        if (at.mask)
          bits = arith::SelectOp::create(b, at.mask, bits, none);
        return SmallVector<Value>{arith::MaxUIOp::create(b, bits, carried[0])};
      })[0];
  Value bits =
      vector::ReductionOp::create(b, vector::CombiningKind::MAXUI, largest);
  Value one = arith::ConstantOp::create(b, b.getI32IntegerAttr(1));
  Value magnitude = arith::BitcastOp::create(
      b, b.getF32Type(), arith::ShRUIOp::create(b, bits, one));
  Value isZero = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, magnitude,
                                       b.f32(kQuantizedMinimum));
  auto orZero = [&](Value value) -> Value {
    return arith::SelectOp::create(b, isZero, b.f32(0.0), value);
  };
  Value steps = b.f32(kQuantizedSteps);
  quantizations[op] = {orZero(arith::DivFOp::create(b, magnitude, steps)),
                       orZero(arith::DivFOp::create(b, steps, magnitude))};
}

/// 1/sqrt(sum of the partials / channels + eps); the partials in index order.
Value EpilogueEmitter::computeRowRMSScale(RowRMSScaleOp op) {
  Value partials = abi.view(op.getSumsq());
  int64_t count = cast<ShapedType>(op.getSumsq().getType()).getDimSize(1);
  Value sum =
      b.forLoop(b.index(0), b.index(count), 1, {b.f32(0.0)},
                [&](Value p, ValueRange carried) -> SmallVector<Value> {
                  Value partial =
                      memref::LoadOp::create(b, partials, ValueRange{row, p});
                  return {arith::AddFOp::create(b, carried[0], partial)};
                })[0];
  Value mean = arith::DivFOp::create(b, sum, b.f32(double(op.getChannels())));
  return emitReciprocalSqrt(
      b, arith::AddFOp::create(b, mean, b.f32(op.getEps().convertToDouble())));
}

Value EpilogueEmitter::computeRMS(RMSNormOp op) {
  int64_t columns = cast<ShapedType>(op.getType()).getDimSize(1);
  Value zero = b.splatF32(0.0, cpu.lanes);
  Value squares = forRange(b.index(0), b.index(columns), columns, {zero},
                           [&](const Position &at, ValueRange carried) {
                             Value x = evaluate(op.getInput(), at);
                             if (at.mask)
                               x = arith::SelectOp::create(b, at.mask, x, zero);
                             return SmallVector<Value>{
                                 vector::FMAOp::create(b, x, x, carried[0])};
                           })[0];
  Value mean =
      arith::DivFOp::create(b, sumLanes(b, squares), b.f32(double(columns)));
  return emitReciprocalSqrt(
      b, arith::AddFOp::create(b, mean, b.f32(op.getEps().convertToDouble())));
}
