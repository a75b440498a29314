//===- EpilogueHeads.cpp - nodes that need other columns of a head --------===//
// A head's chunks lie in neighbouring lanes; the tile begins with a whole head.
//===----------------------------------------------------------------------===//
#include "Epilogue.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::cuda;

/// The sum over `count` neighbouring lanes, from `firstLane` on, in an order
/// that depends on nothing else.
Value EpilogueEmitter::sumOverLanes(Value value, int64_t count,
                                    Value firstLane) {
  if (llvm::isPowerOf2_64(count)) {
    // Groups of a power of two begin at multiples of it.
    for (int64_t step = count / 2; step > 0; step /= 2)
      value = b.fadd(value, b.shuffleXor(value, step, "epilogue.sum"));
    return value;
  }
  Value sum;
  for (int64_t i = 0; i < count; ++i) {
    Value part = b.shuffleIndex(value, b.add(firstLane, i), "epilogue.sum");
    sum = sum ? b.fadd(sum, part) : part;
  }
  return sum;
}

Chunk EpilogueEmitter::evaluateHeadNorm(RMSNormOp op, const Position &at) {
  int64_t headDim = *op.getHeadDim(), headLanes = headDim / kChunkColumns;
  Chunk input = evaluate(op.getInput(), at).values;
  Value squares;
  for (Value x : input)
    squares = squares ? b.fma(x, x, squares) : b.fmul(x, x);
  Value headChunk = b.remainder(lanes->chunk, headLanes);
  Value total = sumOverLanes(squares, headLanes, b.sub(lanes->lane, headChunk));
  Value mean = b.fmul(total, 1.0 / double(headDim));
  Value inverse = b.rsqrt(b.fadd(mean, b.f32(op.getEps().convertToDouble())));
  Chunk gain =
      loadChunk(op.getGain(), {}, b.mul(headChunk, kChunkColumns)).values;
  Chunk results;
  for (auto [x, g] : llvm::zip(input, gain))
    results.push_back(b.fmul(b.fmul(x, inverse), g));
  return results;
}

Chunk EpilogueEmitter::evaluateRope(RopeOp op, const Position &at) {
  int64_t headLanes = int64_t(op.getHeadDim()) / kChunkColumns;
  Chunk input = evaluate(op.getInput(), at).values;
  Value headChunk = b.remainder(lanes->chunk, headLanes);
  if (op.getRope().getRotaryDim() == 0)
    return input;
  return op.getRope().getInterleaved() ? rotatePairs(op, input, headChunk)
                                       : rotateHalves(op, input, headChunk);
}

/// Channel i of the first half pairs with i + half:
/// (x1 cos - x2 sin, x2 cos + x1 sin). Element e of the chunk at column c finds
/// its partner `half` columns on or back: in another lane, at e plus or minus
/// half % 8.
Chunk EpilogueEmitter::rotateHalves(RopeOp op, ArrayRef<Value> x,
                                    Value headChunk) {
  int64_t half = op.getRope().getRotaryDim() / 2;
  int64_t q = half / kChunkColumns, r = half % kChunkColumns;
  const CudaTensor &table = frame.tensor(op.getTable());
  Value position = rowScalars.lookup(op);
  Value column = b.mul(headChunk, kChunkColumns);
  auto partnerAt = [&](int64_t element, Value lane) {
    return b.shuffleIndex(x[element], lane, "epilogue.rope_partner");
  };
  auto on = [&](int64_t lanesOn) { return b.add(lanes->lane, lanesOn); };
  auto back = [&](int64_t lanesBack) {
    return b.sub(lanes->lane, b.i32(lanesBack));
  };
  Chunk results;
  for (int64_t e = 0; e < kChunkColumns; ++e) {
    Value at = b.add(column, e);
    Value isFirst = b.less(at, half);
    Value partner;
    if (r == 0) {
      partner = partnerAt(e, b.select(isFirst, on(q), back(q)));
    } else {
      Value after =
          partnerAt((e + r) % kChunkColumns, on(q + (e + r) / kChunkColumns));
      Value before = partnerAt((e - r + kChunkColumns) % kChunkColumns,
                               back(q + (e < r ? 1 : 0)));
      partner = b.select(isFirst, after, before);
    }
    // Past the rotated channels the angle of the last one is read.
    Value channel = b.select(isFirst, at, b.sub(at, b.i32(half)));
    channel = b.min(channel, half - 1);
    auto angle = [&](int64_t offset) {
      return b.load(b.getF32Type(),
                    table.at(b, position, b.add(channel, offset)),
                    "epilogue.load_angle");
    };
    Value cos = angle(0), sin = angle(half);
    Value signedSin = b.select(isFirst, arith::NegFOp::create(b, sin), sin);
    Value rotated = b.fadd(b.fmul(x[e], cos), b.fmul(partner, signedSin));
    results.push_back(b.select(b.less(at, 2 * half), rotated, x[e]));
  }
  return results;
}

/// Channels 2i and 2i + 1 are a pair, both in the chunk.
Chunk EpilogueEmitter::rotatePairs(RopeOp op, ArrayRef<Value> x,
                                   Value headChunk) {
  int64_t half = op.getRope().getRotaryDim() / 2;
  const CudaTensor &table = frame.tensor(op.getTable());
  Value position = rowScalars.lookup(op);
  Value firstPair = b.mul(headChunk, kChunkColumns / 2);
  Chunk results;
  for (int64_t p = 0; p < kChunkColumns / 2; ++p) {
    Value pair = b.add(firstPair, p);
    Value rotates = b.less(pair, half);
    Value channel = b.min(pair, half - 1);
    auto angle = [&](int64_t offset) {
      return b.load(b.getF32Type(),
                    table.at(b, position, b.add(channel, offset)),
                    "epilogue.load_angle");
    };
    Value cos = angle(0), sin = angle(half);
    Value first = x[2 * p], second = x[2 * p + 1];
    Value rotatedFirst = b.fsub(b.fmul(first, cos), b.fmul(second, sin));
    Value rotatedSecond = b.fadd(b.fmul(second, cos), b.fmul(first, sin));
    results.push_back(b.select(rotates, rotatedFirst, first));
    results.push_back(b.select(rotates, rotatedSecond, second));
  }
  return results;
}
