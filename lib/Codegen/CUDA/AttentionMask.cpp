//===- AttentionMask.cpp - keys that a row does not see -------------------===//
#include "Attention.h"

using namespace mlir;
using namespace mlir::prefill;

AttentionMask::AttentionMask(CudaBuilder &b, const AttentionKernelShape &shape,
                             const AttentionRows &rows, Value lane,
                             Value warpRow)
    : shape(shape), column(sumColumn(b, lane, 0)) {
  for (int64_t f = 0; f < shape.layout.fragments; ++f)
    for (int64_t half = 0; half < 2; ++half) {
      Value row = b.add(warpRow, b.add(sumRow(b, lane, 2 * half), f * kMmaM));
      // Row r of the tile is a head of query row r / group.
      Value queryRow = b.add(rows.rowBegin, b.divide(row, shape.group()));
      KeyRange<Value> keys = emitVisibleKeys(b, shape, rows, queryRow);
      // Rows behind the sequence's last are computed and thrown away.
      end.push_back(b.min(keys.end, rows.seqlenKv));
    }
}

// Against a lane's first key of the block the limits are numbers of the lane,
// its keys constants: one comparison and one select for a score.
void AttentionMask::apply(CudaBuilder &b, Value block,
                          MutableArrayRef<Value> scores) const {
  Value infinity = b.f32(-std::numeric_limits<double>::infinity());
  Value first = b.add(b.mul(block, shape.blockKv), column);
  int64_t keyTiles = shape.blockKv / kMmaN;
  for (int64_t f = 0; f < shape.layout.fragments; ++f)
    for (int64_t half = 0; half < 2; ++half) {
      Value endKey = b.sub(end[2 * f + half], first);
      // A window is for causal attention and ends with the row's own key: its
      // begin follows from its end. Keys before the first do not exist.
      Value beginKey;
      if (int64_t window = shape.mask.slidingWindow)
        beginKey = b.sub(endKey, b.i32(window));
      for (int64_t tile = 0; tile < keyTiles; ++tile)
        for (int64_t e = 0; e < 2; ++e) {
          Value key = b.i32(tile * kMmaN + e);
          Value seen = b.less(key, endKey);
          if (beginKey)
            seen = b.both(seen,
                          b.compare(arith::CmpIPredicate::sge, key, beginKey));
          Value &score = scores[(f * keyTiles + tile) * 4 + 2 * half + e];
          score = b.select(seen, score, infinity);
        }
    }
}
