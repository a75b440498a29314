//===- EpilogueSplits.cpp - combine_splits --------------------------------===//
#include "Epilogue.h"
#include <numbers>

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::cuda;

// Splits in ascending order. One of weight 0 has an output that nobody wrote:
// its lanes load that of the nearest split before it which has a weight, which
// is in a register already or in the cache, and throw it away. So no load waits
// for a branch.
Chunk EpilogueEmitter::evaluateCombineSplits(CombineSplitsOp op,
                                             const Position &at) {
  int64_t splits = op.getNumSplits();
  int64_t columns = cast<ShapedType>(op.getType()).getDimSize(1);
  const CudaTensor &lse = frame.tensor(op.getLse());
  int64_t heads = lse.columns / splits;
  Value head = b.divide(at.column, columns / heads);
  SmallVector<Value> weights;
  for (int64_t split = 0; split < splits; ++split)
    weights.push_back(b.load(b.getF32Type(),
                             lse.at(b, row.index, b.add(head, split * heads)),
                             "combine.load_lse"));
  Value infinity = b.f32(-std::numeric_limits<double>::infinity());
  Value largest = weights.front();
  for (Value value : ArrayRef(weights).drop_front())
    largest = b.fmax(largest, value);
  // Without a key: -inf - -inf would be NaN.
  Value none =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, largest, infinity);
  Value shift = b.select(none, b.f32(0.0), largest);
  for (Value &weight : weights)
    weight = b.exp2(b.fmul(b.fsub(weight, shift), std::numbers::log2e));

  Value sum, from = b.i32(0);
  Chunk results(kChunkColumns);
  for (auto [split, weight] : llvm::enumerate(weights)) {
    Value isZero =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, weight, b.f32(0.0));
    from = b.select(isZero, from, b.i32(int64_t(split)));
    Chunk values = loadChunk(op.getPartials(), row.index,
                             b.add(b.mul(from, columns), at.column))
                       .values;
    for (auto [result, value] : llvm::zip(results, values)) {
      value = b.select(isZero, b.f32(0.0), value);
      result = result ? b.fma(weight, value, result) : b.fmul(weight, value);
    }
    sum = sum ? b.fadd(sum, weight) : weight;
  }
  Value empty =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, sum, b.f32(0.0));
  Value factor = b.select(empty, b.f32(0.0), b.reciprocal(sum));
  for (Value &result : results)
    result = b.fmul(result, factor);
  return results;
}
