//===- AttentionRowTile.cpp - a few rows against one KV block -------------===//
#include "AttentionRowTile.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "prefill/Codegen/CPU/VectorMath.h"

using namespace mlir;
using namespace mlir::prefill;

RowTileEmitter::RowTileEmitter(AttentionContext &context,
                               const AttentionBlock &block, BlockMask mask,
                               Value firstRow, int64_t count, Value rows)
    : b(context.b), isa(context.isa), shape(context.shape),
      scratch(context.scratch), block(block), mask(mask), firstRow(firstRow),
      count(count), rows(rows), lanes(context.isa.lanes) {}

RowTileEmitter::~RowTileEmitter() = default;

void RowTileEmitter::emit() {
  if (mask == BlockMask::None) {
    firstPanel = b.index(0);
    endPanel = b.index(shape.blockKv / kPanelN);
    emitProducts();
    return;
  }
  // Panels that no row sees are left out of both products.
  Value lastRow = b.sub(b.add(firstRow, rows), b.index(1));
  Value begin = b.sub(loadKey(scratch.firstKey, firstRow), block.firstKey);
  Value end = b.sub(b.add(loadKey(scratch.firstKey, lastRow),
                          loadKey(scratch.numKeys, lastRow)),
                    block.firstKey);
  auto clamp = [&](Value key) {
    return b.min(b.max(key, b.index(0)), block.numKeys);
  };
  firstPanel = b.divide(clamp(begin), kPanelN);
  endKey = clamp(end);
  endPanel = b.ceilDivide(endKey, kPanelN);
  Value lastBegin = b.sub(loadKey(scratch.firstKey, lastRow), block.firstKey);
  Value firstEnd = b.sub(b.add(loadKey(scratch.firstKey, firstRow),
                               loadKey(scratch.numKeys, firstRow)),
                         block.firstKey);
  fullBegin = b.ceilDivide(clamp(lastBegin), kPanelN);
  fullEnd = b.divide(clamp(firstEnd), kPanelN);
  b.ifThen(b.compare(arith::CmpIPredicate::slt, firstPanel, endPanel),
           [&] { emitProducts(); });
}

Value RowTileEmitter::loadKey(Value memref, Value row) {
  return b.toIndex(memref::LoadOp::create(b, memref, ValueRange{row}));
}

void RowTileEmitter::emitProducts() {
  SmallVector<Value> largest = emitScores();
  emitRowState(largest);
  b.forLoop(b.index(0), rows, 1, [&](Value row) { emitProbabilities(row); });
  emitAccumulators();
}

Value RowTileEmitter::pageOffset(Value panel) {
  return b.toIndex(
      memref::LoadOp::create(b, scratch.keyOffsets, ValueRange{panel}));
}

void RowTileEmitter::forEachRunOfValues(
    llvm::function_ref<void(Value, Value, Value,
                            llvm::function_ref<Value(Value)>)>
        multiply) {
  auto inCache = [&](Value panel) { return pageOffset(panel); };
  if (!shape.readsPages()) {
    multiply(firstPanel, endPanel, scratch.values, [&](Value panel) {
      return b.mul(panel, shape.valuePanelElements());
    });
  } else if (mask == BlockMask::None) {
    multiply(firstPanel, endPanel, block.cache.value, inCache);
  } else {
    // The values of a page with unused slots come from their copy.
    Value copied =
        b.min(b.max(b.divide(block.numKeys, kPanelN), firstPanel), endPanel);
    multiply(firstPanel, copied, block.cache.value, inCache);
    multiply(copied, endPanel, scratch.lastValues,
             [&](Value) { return b.index(0); });
  }
}

Value RowTileEmitter::emitMask(Value score, Value row, Value column) {
  auto scalar = [&](Value memref) -> Value {
    return memref::LoadOp::create(b, memref, ValueRange{row});
  };
  Value key = arith::IndexCastOp::create(b, b.getI32Type(),
                                         b.add(block.firstKey, column));
  Value first = arith::SubIOp::create(b, key, scalar(scratch.firstKey));
  SmallVector<int32_t> steps;
  for (int64_t i = 0; i < lanes; ++i)
    steps.push_back(i);
  Value iota = arith::ConstantOp::create(
      b, DenseElementsAttr::get(VectorType::get({lanes}, b.getI32Type()),
                                ArrayRef(steps)));
  Value distance = arith::AddIOp::create(b, broadcast(b, first, lanes), iota);
  Value seen =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ult, distance,
                            broadcast(b, scalar(scratch.numKeys), lanes));
  return arith::SelectOp::create(b, seen, score,
                                 b.splatF32(kNegativeInfinity, lanes));
}

/// Of all rows at once: new maximum, shift of the scores and rescaling
/// factor.
void RowTileEmitter::emitRowState(ArrayRef<Value> largest) {
  auto larger = [&](Value lhs, Value rhs) { return maximum(b, lhs, rhs); };
  Value oldMax = loadVector(b, scratch.rowMax, firstRow, count);
  Value newMax = larger(reduceRows(b, largest, larger), oldMax);
  storeVector(b, newMax, scratch.rowMax, firstRow);
  // A row without a key so far: -inf - -inf would be NaN.
  Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, newMax,
                                     b.splatF32(kNegativeInfinity, count));
  Value shift =
      arith::SelectOp::create(b, none, b.splatF32(0.0, count), newMax);
  storeVector(b, shift, scratch.shift, b.index(0));
  // Exactly 1 where the maximum stays.
  Value rescale = emitExp2(b, arith::SubFOp::create(b, oldMax, shift));
  storeVector(b, rescale, scratch.rescale, b.index(0));
}

Value RowTileEmitter::loadBroadcast(Value memref, Value index) {
  return broadcast(b, memref::LoadOp::create(b, memref, ValueRange{index}),
                   lanes);
}

/// Of one row: probabilities and their sum.
void RowTileEmitter::emitProbabilities(Value row) {
  Value shifts = loadBroadcast(scratch.shift, row);
  Value rowScores = b.mul(row, shape.blockKv);
  Value sumPlace = b.mul(b.add(firstRow, row), kMaxLanes);
  Value oldSum =
      arith::MulFOp::create(b, loadVector(b, scratch.rowSum, sumPlace, lanes),
                            loadBroadcast(scratch.rescale, row));
  int64_t pairs = kPanelN / (2 * lanes);
  SmallVector<Value> sums(2 * pairs, b.splatF32(0.0, lanes));
  sums[0] = oldSum;
  sums = b.forLoop(firstPanel, endPanel, 1, sums,
                   [&](Value panel, ValueRange sums) -> SmallVector<Value> {
                     SmallVector<Value> next(sums);
                     Value at = b.add(rowScores, b.mul(panel, kPanelN));
                     for (int64_t pair = 0; pair < pairs; ++pair)
                       emitProbabilityPair(b.add(at, 2 * pair * lanes), shifts,
                                           next[2 * pair], next[2 * pair + 1]);
                     return next;
                   });
  Value sum = sums[0];
  for (size_t v = 1; v < sums.size(); ++v)
    sum = arith::AddFOp::create(b, sum, sums[v]);
  storeVector(b, sum, scratch.rowSum, sumPlace);
}

/// Two vectors of scores become probabilities, whose sums are added to
/// `evenSum` and `oddSum`.
void RowTileEmitter::emitProbabilityPair(Value at, Value shifts, Value &evenSum,
                                         Value &oddSum) {
  auto probability = [&](Value place) {
    Value score = loadVector(b, scratch.scores, place, lanes);
    return emitExp2For(b, isa, arith::SubFOp::create(b, score, shifts),
                       shape.storedType);
  };
  Value even = probability(at), odd = probability(b.add(at, lanes));
  SmallVector<Value> rounded =
      emitTruncatePair(b, isa, even, odd, shape.elementType);
  storeVector(b, rounded[0], scratch.probabilities, at);
  if (rounded.size() == 1) {
    // Both vectors at once: a product with ones adds up the pairs.
    Type type = rounded[0].getType();
    Value ones = arith::ConstantOp::create(
        b, DenseElementsAttr::get(cast<VectorType>(type),
                                  b.getFloatAttr(shape.elementType, 1.0)));
    evenSum = x86vector::DotBF16Op::create(b, evenSum, rounded[0], ones);
    return;
  }
  storeVector(b, rounded[1], scratch.probabilities, b.add(at, lanes));
  if (!shape.elementType.isF32()) {
    even = arith::ExtFOp::create(b, b.vectorF32(lanes), rounded[0]);
    odd = arith::ExtFOp::create(b, b.vectorF32(lanes), rounded[1]);
  }
  evenSum = arith::AddFOp::create(b, evenSum, even);
  oddSum = arith::AddFOp::create(b, oddSum, odd);
}
