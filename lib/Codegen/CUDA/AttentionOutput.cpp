//===- AttentionOutput.cpp - from sums to rows of the output --------------===//
#include "Attention.h"
#include "prefill/Codegen/CUDA/ChipTable.h"

using namespace mlir;
using namespace mlir::prefill;

Value prefill::emitRowSum(CudaBuilder &b, const AttentionState &state,
                          int64_t row) {
  Value sum = state.rowSum[row];
  for (int64_t mask : {1, 2})
    sum = b.fadd(sum, b.shuffleXor(sum, mask, "attention.row_sum"));
  return sum;
}

// NaN stays what it is.
Value prefill::emitNormalizer(CudaBuilder &b, Value sum) {
  Value empty =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, sum, b.f32(0.0));
  return b.select(empty, b.f32(0.0), b.reciprocal(sum));
}

void prefill::emitAttentionOutput(CudaBuilder &b,
                                  const AttentionKernelShape &shape,
                                  const AttentionRows &rows,
                                  const CudaBatch &batch,
                                  const AttentionState &state, Value shared,
                                  Value out) {
  // Addresses that the query's copy and the output share would otherwise stay
  // in registers, through the loops in between.
  Value zero = emitUnknownZero(b, batch);
  Value thread = b.add(b.threadId(), zero);
  Value lane = b.bitAnd(thread, kWarpThreads - 1);
  Value warpRow =
      b.mul(b.divide(thread, kWarpThreads), shape.layout.fragments * kMmaM);
  SwizzledTile tile = shape.outTile();
  int64_t columnTiles = shape.columnTiles();
  // Other warps may still read the stages that the output lies on.
  b.barrier("attention.stages_free");
  for (int64_t f = 0; f < shape.layout.fragments; ++f)
    for (int64_t half = 0; half < 2; ++half) {
      Value factor = emitNormalizer(b, emitRowSum(b, state, 2 * f + half));
      Value row = b.add(warpRow, b.add(sumRow(b, lane, 2 * half), f * kMmaM));
      Value inChunk = b.mul(sumColumn(b, lane, 0), 2);
      for (int64_t column = 0; column < columnTiles; ++column) {
        const Value *pair =
            &state.accumulator[(f * columnTiles + column) * 4 + 2 * half];
        Value word = b.pack(b.fmul(pair[0], factor), b.fmul(pair[1], factor),
                            shape.elementType);
        Value offset = b.add(tile.offset(b, row, b.i32(column)), inChunk);
        b.store(word, b.pointer(shared, offset), "attention.stage_out");
      }
    }
  b.barrier("attention.out_staged");

  int64_t group = shape.group(), headDim = shape.heads.headDimV;
  Value origin =
      b.add(b.mul(b.toI64(b.add(rows.batchRow, zero)), shape.outRowElements()),
            b.toI64(b.mul(rows.kvHead, group * headDim)));
  Value first = b.elementPointer(out, origin, shape.elementType);
  int64_t total = tile.rows * tile.chunks, threads = shape.layout.threads();
  for (int64_t begin = 0; begin < total; begin += threads) {
    Value index = b.add(thread, begin);
    Value row = b.divide(index, tile.chunks);
    Value chunk = b.remainder(index, tile.chunks);
    Value queryRow = b.divide(row, group), head = b.remainder(row, group);
    // Rows of the tile behind the last query row's heads are past `count`.
    b.ifThen(b.less(queryRow, rows.count), [&] {
      SmallVector<Value> words = b.loadChunk(
          b.pointer(shared, tile.offset(b, row, chunk)), "attention.read_out");
      Value element = b.add(
          b.add(b.mul(queryRow, shape.outRowElements()), b.mul(head, headDim)),
          b.mul(chunk, kChunkElements));
      b.storeChunk(words, b.elementPointer(first, element, shape.elementType),
                   "attention.store");
    });
  }
}
