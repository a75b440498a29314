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

/// Cosines and sines of `count` (1, 4 or 8) channels from `first` (i32) on;
/// past the last channel its own are read.
EpilogueEmitter::Angles EpilogueEmitter::loadAngles(RopeOp op, Value first,
                                                    int64_t count) {
  int64_t half = op.getRope().getRotaryDim() / 2;
  const CudaTensor &table = frame.tensor(op.getTable());
  Value position = rowScalars.lookup(op);
  StringRef site = "epilogue.load_angle";
  Angles angles;
  auto load = [&](Chunk &values, int64_t offset) {
    if (count > 1 && half % count == 0) {
      // A row of the table and its halves begin at multiples of 16 bytes.
      Value channel = b.add(b.min(first, half - count), offset);
      Value pointer = table.at(b, position, channel);
      for (int64_t at = 0; at < count; at += 4)
        llvm::append_range(values,
                           b.loadFloats(b.pointer(pointer, at * 4), site));
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      Value channel = b.add(b.min(b.add(first, i), half - 1), offset);
      values.push_back(
          b.load(b.getF32Type(), table.at(b, position, channel), site));
    }
  };
  load(angles.cos, 0);
  load(angles.sin, half);
  return angles;
}

/// Channel i of the first half pairs with i + half:
/// (x1 cos - x2 sin, x2 cos + x1 sin).
Chunk EpilogueEmitter::rotateHalves(RopeOp op, ArrayRef<Value> x,
                                    Value headChunk) {
  int64_t half = op.getRope().getRotaryDim() / 2;
  if (half % kChunkColumns != 0)
    return rotateCutHalves(op, x, headChunk);
  // The partner's chunk lies `half` columns on or back, in another lane.
  int64_t apart = half / kChunkColumns;
  Value isFirst = b.less(headChunk, apart);
  Value partnerLane = b.select(isFirst, b.add(lanes->lane, apart),
                               b.sub(lanes->lane, b.i32(apart)));
  Value pairChunk =
      b.select(isFirst, headChunk, b.sub(headChunk, b.i32(apart)));
  Angles angles =
      loadAngles(op, b.mul(pairChunk, kChunkColumns), kChunkColumns);
  Value rotates = b.less(headChunk, 2 * apart);
  bool all = 2 * half == int64_t(op.getHeadDim());
  Chunk results;
  for (int64_t e = 0; e < kChunkColumns; ++e) {
    Value partner = b.shuffleIndex(x[e], partnerLane, "epilogue.rope_partner");
    Value rotated =
        rotate(x[e], partner, angles.cos[e], angles.sin[e], isFirst);
    results.push_back(all ? rotated : b.select(rotates, rotated, x[e]));
  }
  return results;
}

/// x cos - partner sin for the first of a pair, x cos + partner sin for the
/// second.
Value EpilogueEmitter::rotate(Value x, Value partner, Value cos, Value sin,
                              Value isFirst) {
  Value signedSin = b.select(isFirst, arith::NegFOp::create(b, sin), sin);
  return b.fadd(b.fmul(x, cos), b.fmul(partner, signedSin));
}

/// Halves that end within a chunk: element e finds its partner at e plus or
/// minus half % 8, and a chunk may hold channels of both halves.
Chunk EpilogueEmitter::rotateCutHalves(RopeOp op, ArrayRef<Value> x,
                                       Value headChunk) {
  int64_t half = op.getRope().getRotaryDim() / 2;
  int64_t q = half / kChunkColumns, r = half % kChunkColumns;
  Value column = b.mul(headChunk, kChunkColumns);
  auto partnerAt = [&](int64_t element, Value lane) {
    return b.shuffleIndex(x[element], lane, "epilogue.rope_partner");
  };
  Chunk results;
  for (int64_t e = 0; e < kChunkColumns; ++e) {
    Value at = b.add(column, e);
    Value isFirst = b.less(at, half);
    Value after = partnerAt((e + r) % kChunkColumns,
                            b.add(lanes->lane, q + (e + r) / kChunkColumns));
    Value before = partnerAt((e - r + kChunkColumns) % kChunkColumns,
                             b.sub(lanes->lane, b.i32(q + (e < r ? 1 : 0))));
    Value partner = b.select(isFirst, after, before);
    Value channel = b.select(isFirst, at, b.sub(at, b.i32(half)));
    Angles angles = loadAngles(op, channel, 1);
    Value rotated =
        rotate(x[e], partner, angles.cos[0], angles.sin[0], isFirst);
    results.push_back(b.select(b.less(at, 2 * half), rotated, x[e]));
  }
  return results;
}

/// Channels 2i and 2i + 1 are a pair, both in the chunk.
Chunk EpilogueEmitter::rotatePairs(RopeOp op, ArrayRef<Value> x,
                                   Value headChunk) {
  int64_t half = op.getRope().getRotaryDim() / 2;
  constexpr int64_t pairs = kChunkColumns / 2;
  Value firstPair = b.mul(headChunk, pairs);
  Angles angles = loadAngles(op, firstPair, pairs);
  Chunk results;
  for (int64_t p = 0; p < pairs; ++p) {
    Value rotates = b.less(b.add(firstPair, p), half);
    Value cos = angles.cos[p], sin = angles.sin[p];
    Value first = x[2 * p], second = x[2 * p + 1];
    Value rotatedFirst = b.fsub(b.fmul(first, cos), b.fmul(second, sin));
    Value rotatedSecond = b.fadd(b.fmul(second, cos), b.fmul(first, sin));
    results.push_back(b.select(rotates, rotatedFirst, first));
    results.push_back(b.select(rotates, rotatedSecond, second));
  }
  return results;
}
