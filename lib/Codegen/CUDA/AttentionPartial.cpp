//===- AttentionPartial.cpp - from sums to a split's results --------------===//
//
// f32 rows of the output lie in registers as pairs of columns, and 16 bytes are
// four columns: neighbouring lanes exchange pairs, so that a quad's lanes store
// 64 bytes of a row together, without a way through shared memory.
//
//===----------------------------------------------------------------------===//
#include "Attention.h"
#include "prefill/Codegen/CUDA/ChipTable.h"
#include <numbers>

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// Where results of the tile's rows lie.
class PartialRows {
public:
  PartialRows(CudaBuilder &b, const AttentionKernelShape &shape,
              const AttentionRows &rows, const AttentionPartial &to)
      : shape(shape), rows(rows), to(to) {
    // Row of the batch, split, head: the tile's first.
    Value place = b.mul(b.toI64(rows.batchRow), rowHeads());
    firstHead = b.add(place, b.toI64(b.add(b.mul(rows.split, shape.numHeads()),
                                           b.mul(rows.kvHead, shape.group()))));
  }

  /// Of tile row `row` (i32): whether it exists, and its head's number among
  /// all heads of all splits and rows, i64.
  Value exists(CudaBuilder &b, Value row) const {
    return b.less(b.divide(row, shape.group()), rows.count);
  }
  Value head(CudaBuilder &b, Value row) const {
    Value queryRow = b.divide(row, shape.group());
    Value inGroup = b.remainder(row, shape.group());
    return b.add(firstHead,
                 b.toI64(b.add(b.mul(queryRow, rowHeads()), inGroup)));
  }
  void storeLse(CudaBuilder &b, Value head, Value value) const {
    b.store(value, b.elementPointer(to.lse, head, b.getF32Type()),
            "attention.store_lse");
  }
  Value output(CudaBuilder &b, Value head, Value column) const {
    Value element = b.add(b.mul(head, shape.heads.headDimV), b.toI64(column));
    return b.elementPointer(to.outputs, element, b.getF32Type());
  }

private:
  int64_t rowHeads() const { return shape.numSplits * shape.numHeads(); }

  const AttentionKernelShape &shape;
  const AttentionRows &rows;
  const AttentionPartial &to;
  Value firstHead;
};

} // namespace

void prefill::emitAttentionPartial(CudaBuilder &b,
                                   const AttentionKernelShape &shape,
                                   const AttentionRows &rows,
                                   const CudaBatch &batch,
                                   const AttentionState &state,
                                   const AttentionPartial &to) {
  // Addresses are computed anew, as those of emitAttentionOutput.
  Value thread = b.add(b.threadId(), emitUnknownZero(b, batch));
  Value lane = b.bitAnd(thread, kWarpThreads - 1);
  Value warpRow =
      b.mul(b.divide(thread, kWarpThreads), shape.layout.fragments * kMmaM);
  Value isOdd = b.equal(b.bitAnd(lane, 1), 1);
  // A lane's pair of a column tile begins at `column`; what it stores of a pair
  // of tiles at `column` rounded down to four, in the first tile or the second.
  Value column = sumColumn(b, lane, 0);
  Value inPair =
      b.add(b.bitAnd(column, 4), b.select(isOdd, b.i32(kMmaN), b.i32(0)));
  PartialRows places(b, shape, rows, to);
  int64_t columnTiles = shape.columnTiles();
  for (int64_t f = 0; f < shape.layout.fragments; ++f)
    for (int64_t half = 0; half < 2; ++half) {
      Value sum = emitRowSum(b, state, 2 * f + half);
      Value factor = emitNormalizer(b, sum);
      // ln of sum over keys of exp2(score).
      Value largest = state.rowMax[2 * f + half];
      if (shape.scalesLate())
        largest = b.fmul(largest, shape.scoreScale);
      Value lse = b.fmul(b.fadd(largest, b.log2(sum)), std::numbers::ln2);
      Value row = b.add(warpRow, b.add(sumRow(b, lane, 2 * half), f * kMmaM));
      Value exists = places.exists(b, row);
      Value head = places.head(b, row);
      b.ifThen(b.both(exists, b.equal(column, 0)),
               [&] { places.storeLse(b, head, lse); });
      Value out = places.output(b, head, inPair);
      auto value = [&](int64_t tile, int64_t e) {
        return b.fmul(
            state.accumulator[(f * columnTiles + tile) * 4 + 2 * half + e],
            factor);
      };
      // A branch for each store: few values are exchanged at a time.
      for (int64_t tile = 0; tile < columnTiles; tile += 2) {
        bool isSingle = tile + 1 == columnTiles;
        SmallVector<Value> kept, taken;
        for (int64_t e = 0; e < 2; ++e) {
          Value first = value(tile, e);
          Value second = isSingle ? first : value(tile + 1, e);
          kept.push_back(b.select(isOdd, second, first));
          taken.push_back(b.shuffleXor(b.select(isOdd, first, second), 1,
                                       "attention.exchange"));
        }
        SmallVector<Value> chunk;
        for (int64_t e = 0; e < 2; ++e)
          chunk.push_back(b.select(isOdd, taken[e], kept[e]));
        for (int64_t e = 0; e < 2; ++e)
          chunk.push_back(b.select(isOdd, kept[e], taken[e]));
        // Of a single tile the even lanes have all.
        Value stores =
            isSingle ? b.both(exists, b.less(inPair, kMmaN)) : exists;
        b.ifThen(stores, [&] {
          b.storeFloats(chunk, b.pointer(out, tile * kMmaN * 4),
                        "attention.store");
        });
      }
    }
}

void prefill::emitEmptyPartial(CudaBuilder &b,
                               const AttentionKernelShape &shape,
                               const AttentionRows &rows,
                               const AttentionPartial &to) {
  PartialRows places(b, shape, rows, to);
  b.forLoop(b.threadId(), b.mul(rows.count, shape.group()),
            shape.layout.threads(), [&](Value row) {
              places.storeLse(b, places.head(b, row),
                              b.f32(-std::numeric_limits<double>::infinity()));
            });
}
