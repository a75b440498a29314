//===- AttentionSoftmax.cpp - online softmax in registers -----------------===//
//
// Scores still lack the score scale if it comes late. Of each row the four
// lanes of a quad hold a part of the keys: they agree on the maximum for every
// block, and add up their sums at the end.
//
//===----------------------------------------------------------------------===//
#include "Attention.h"

using namespace mlir;
using namespace mlir::prefill;

AttentionState AttentionState::initial(CudaBuilder &b,
                                       const AttentionKernelShape &shape) {
  int64_t fragments = shape.layout.fragments;
  AttentionState state;
  state.accumulator = b.zeros(fragments * shape.columnTiles() * 4);
  state.rowMax.assign(fragments * 2,
                      b.f32(-std::numeric_limits<double>::infinity()));
  state.rowSum = b.zeros(fragments * 2);
  return state;
}

SmallVector<Value> AttentionState::pack() const {
  SmallVector<Value> values(accumulator);
  values.append(rowMax);
  values.append(rowSum);
  return values;
}

AttentionState AttentionState::unpack(const AttentionKernelShape &shape,
                                      ValueRange values) {
  int64_t rows = shape.layout.fragments * 2;
  int64_t sums = shape.layout.fragments * shape.columnTiles() * 4;
  AttentionState state;
  state.accumulator = SmallVector<Value>(values.take_front(sums));
  state.rowMax = SmallVector<Value>(values.slice(sums, rows));
  state.rowSum = SmallVector<Value>(values.slice(sums + rows, rows));
  return state;
}

SmallVector<Value> prefill::emitOnlineSoftmax(CudaBuilder &b,
                                              const AttentionKernelShape &shape,
                                              bool hasMask,
                                              ArrayRef<Value> scores,
                                              AttentionState &state) {
  int64_t keyTiles = shape.blockKv / kMmaN, columnTiles = shape.columnTiles();
  bool scaled = shape.scalesLate();
  SmallVector<Value> words(shape.layout.fragments * keyTiles * 2);
  for (int64_t f = 0; f < shape.layout.fragments; ++f)
    for (int64_t half = 0; half < 2; ++half) {
      auto score = [&](int64_t tile, int64_t e) {
        return scores[(f * keyTiles + tile) * 4 + 2 * half + e];
      };
      Value oldMax = state.rowMax[2 * f + half];
      Value newMax = b.fmax(score(0, 0), score(0, 1));
      for (int64_t tile = 1; tile < keyTiles; ++tile)
        newMax = b.fmax(newMax, b.fmax(score(tile, 0), score(tile, 1)));
      for (int64_t mask : {1, 2})
        newMax =
            b.fmax(newMax, b.shuffleXor(newMax, mask, "attention.row_max"));
      newMax = b.fmax(newMax, oldMax);
      state.rowMax[2 * f + half] = newMax;
      // A row without a key so far: -inf - -inf would be NaN.
      Value shift = newMax;
      if (hasMask) {
        Value none = arith::CmpFOp::create(
            b, arith::CmpFPredicate::OEQ, newMax,
            b.f32(-std::numeric_limits<double>::infinity()));
        shift = b.select(none, b.f32(0.0), newMax);
      }
      // Exactly 1 where the maximum stays.
      Value difference = b.fsub(oldMax, shift);
      if (scaled)
        difference = b.fmul(difference, shape.scoreScale);
      Value rescale = b.exp2(difference);
      Value scale, offset;
      if (scaled) {
        scale = b.f32(shape.scoreScale);
        offset = b.fmul(shift, -shape.scoreScale);
      }
      Value sum = b.fmul(state.rowSum[2 * f + half], rescale);
      for (int64_t tile = 0; tile < keyTiles; ++tile) {
        Value probabilities[2];
        for (int64_t e = 0; e < 2; ++e) {
          Value value = score(tile, e);
          value = b.exp2(scaled ? b.fma(value, scale, offset)
                                : b.fsub(value, shift));
          probabilities[e] = value;
          sum = b.fadd(sum, value);
        }
        words[(f * keyTiles + tile) * 2 + half] =
            b.pack(probabilities[0], probabilities[1], shape.elementType);
      }
      state.rowSum[2 * f + half] = sum;
      for (int64_t tile = 0; tile < columnTiles; ++tile)
        for (int64_t e = 0; e < 2; ++e) {
          Value &value =
              state.accumulator[(f * columnTiles + tile) * 4 + 2 * half + e];
          value = b.fmul(value, rescale);
        }
    }
  return words;
}
