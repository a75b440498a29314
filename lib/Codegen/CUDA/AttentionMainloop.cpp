//===- AttentionMainloop.cpp - S = Q K^T and O += P V ---------------------===//
#include "Attention.h"

using namespace mlir;
using namespace mlir::prefill;

AttentionMainloop::AttentionMainloop(CudaBuilder &b,
                                     const AttentionKernelShape &shape,
                                     Value lane, Value warpRow)
    : shape(shape),
      query(b, shape.queryTile(), FragmentReader::Operand::A, lane, warpRow),
      key(b, shape.keyTile(), FragmentReader::Operand::B, lane, b.i32(0)),
      value(b, shape.valueTile(), FragmentReader::Operand::BTransposed, lane,
            b.i32(0)) {}

SmallVector<Value> AttentionMainloop::readQuery(CudaBuilder &b,
                                                Value queryShared,
                                                int64_t fragment,
                                                int64_t step) const {
  return query.load(b, queryShared, fragment * kMmaM, step, "attention.read_q");
}

void AttentionMainloop::loadQuery(CudaBuilder &b, Value queryShared) {
  for (int64_t f = 0; f < shape.layout.fragments; ++f)
    for (int64_t step = 0; step < shape.heads.depth() / kMmaK; ++step)
      queryWords.push_back(readQuery(b, queryShared, f, step));
}

SmallVector<Value> AttentionMainloop::scores(CudaBuilder &b, Value queryShared,
                                             Value keyShared) const {
  int64_t fragments = shape.layout.fragments;
  int64_t steps = shape.heads.depth() / kMmaK;
  int64_t keyTiles = shape.blockKv / kMmaN;
  SmallVector<Value> sums = b.zeros(fragments * keyTiles * 4);
  auto multiply = [&](int64_t f, int64_t tile, ValueRange a, ValueRange k) {
    auto place = sums.begin() + (f * keyTiles + tile) * 4;
    SmallVector<Value> next =
        b.mma(shape.elementType, a, k, SmallVector<Value>(place, place + 4),
              "attention.mma_qk");
    llvm::copy(next, place);
  };
  for (int64_t step = 0; step < steps; ++step) {
    SmallVector<SmallVector<Value>> a;
    for (int64_t f = 0; f < fragments; ++f)
      a.push_back(queryWords.empty() ? readQuery(b, queryShared, f, step)
                                     : queryWords[f * steps + step]);
    for (int64_t tile = 0; tile < keyTiles; tile += 2) {
      SmallVector<Value> k =
          key.load(b, keyShared, tile * kMmaN, step, "attention.read_k");
      for (int64_t f = 0; f < fragments; ++f) {
        multiply(f, tile, a[f], ArrayRef(k).take_front(2));
        multiply(f, tile + 1, a[f], ArrayRef(k).drop_front(2));
      }
    }
  }
  if (shape.scoreScale != 1.0 && !shape.scalesLate())
    for (Value &score : sums)
      score = b.fmul(score, shape.scoreScale);
  return sums;
}

// Two neighbouring tiles of sums, 16 rows by 16 keys, are the A operand of 16
// keys as they lie in the lanes.
void AttentionMainloop::addValues(CudaBuilder &b, ArrayRef<Value> probabilities,
                                  Value valueShared,
                                  AttentionState &state) const {
  int64_t fragments = shape.layout.fragments;
  int64_t keyTiles = shape.blockKv / kMmaN, columnTiles = shape.columnTiles();
  for (int64_t tile = 0; tile < keyTiles; tile += 2) {
    SmallVector<SmallVector<Value>> a(fragments);
    for (int64_t f = 0; f < fragments; ++f)
      for (int64_t half : {0, 1})
        for (int64_t row : {0, 1})
          a[f].push_back(probabilities[(f * keyTiles + tile + half) * 2 + row]);
    for (int64_t column = 0; column < columnTiles; column += 2) {
      SmallVector<Value> v = value.load(b, valueShared, tile * kMmaN,
                                        column / 2, "attention.read_v");
      for (int64_t f = 0; f < fragments; ++f)
        for (int64_t part = 0; part < 2 && column + part < columnTiles;
             ++part) {
          auto place =
              state.accumulator.begin() + (f * columnTiles + column + part) * 4;
          SmallVector<Value> next =
              b.mma(shape.elementType, a[f], ArrayRef(v).slice(2 * part, 2),
                    SmallVector<Value>(place, place + 4), "attention.mma_pv");
          llvm::copy(next, place);
        }
    }
  }
}
