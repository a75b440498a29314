//===- AccumulatorStage.cpp - accumulators on their way to rows -----------===//
#include "AccumulatorStage.h"
#include "prefill/Codegen/CUDA/Fragments.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::cuda;

static constexpr int64_t kFloatBytes = 4;

// A multiple of 128 bytes and 32: four rows of 32 bytes fill the banks.
int64_t AccumulatorStage::pitch() const {
  return llvm::alignTo(columns * kFloatBytes, 128) + 32;
}

// Eight lanes that read 32 bytes each take their halves in two goes of 16
// bytes; where bits 3 and 4 of the chunk's number differ the halves change
// places, so that every go touches all banks: in rows without a gap, and in
// runs of 32 columns with gaps as wide.
Value AccumulatorStage::chunkOffset(CudaBuilder &b, Value row,
                                    Value chunk) const {
  Value flip =
      b.bitAnd(b.bitXor(b.shiftRight(chunk, 3), b.shiftRight(chunk, 4)), 1);
  return b.add(b.mul(row, pitch()), b.mul(b.bitXor(chunk, flip), kChunkBytes));
}

void AccumulatorStage::store(CudaBuilder &b, Value shared, Value lane,
                             Value row, Value firstColumn, int64_t column,
                             ValueRange sums) const {
  Value pair = sumColumn(b, lane, 0);
  Value at = b.add(b.add(firstColumn, column), pair);
  Value inChunk = b.mul(b.bitAnd(at, 3), kFloatBytes);
  Value offset = b.add(
      chunkOffset(b, b.add(row, sumRow(b, lane, 0)), b.divide(at, 4)), inChunk);
  Value first = b.pointer(shared, offset);
  for (int64_t half = 0; half < 2; ++half) {
    Value two = LLVM::PoisonOp::create(b, b.vectorF32(2));
    for (int64_t e = 0; e < 2; ++e)
      two = LLVM::InsertElementOp::create(b, two, sums[half * 2 + e], b.i32(e));
    b.store(two, b.pointer(first, half * 8 * pitch()), "epilogue.stage_store",
            2 * kFloatBytes);
  }
}

SmallVector<Value> AccumulatorStage::load(CudaBuilder &b, Value shared,
                                          Value row, Value column) const {
  Value chunk = b.divide(column, 4);
  SmallVector<Value> values;
  for (int64_t half = 0; half < 2; ++half) {
    Value offset = chunkOffset(b, row, b.add(chunk, half));
    llvm::append_range(
        values, b.loadFloats(b.pointer(shared, offset), "epilogue.stage_load"));
  }
  return values;
}
