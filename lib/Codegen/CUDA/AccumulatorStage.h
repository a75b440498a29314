//===- AccumulatorStage.h - accumulators on their way to rows ---*- C++ -*-===//
//
// A warp's accumulators lie scattered over its lanes; the epilogue wants rows.
// They meet in a tile of f32 in shared memory. A row's 16-byte chunks are
// permuted by their column, and rows are padded by 32 bytes: pairs that lanes
// of a fragment write, and the 32 bytes that neighbouring lanes of a row read,
// lie in different banks.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_ACCUMULATORSTAGE_H
#define PREFILL_CODEGEN_CUDA_ACCUMULATORSTAGE_H

#include "prefill/Codegen/CUDA/SharedMemory.h"

namespace mlir::prefill::cuda {

struct AccumulatorStage {
  int64_t rows = 0, columns = 0; // columns: a multiple of 8

  int64_t pitch() const; // bytes
  int64_t bytes() const { return rows * pitch(); }

  /// Writes a fragment of the sums (Fragments.h: four f32) whose 16x8 tile is
  /// at `row` (i32) and `column` (static, a multiple of 8) past `firstColumn`
  /// (i32, a multiple of 8).
  void store(CudaBuilder &b, Value shared, Value lane, Value row,
             Value firstColumn, int64_t column, ValueRange sums) const;
  /// 8 columns from `column` (i32, a multiple of 8) on.
  SmallVector<Value> load(CudaBuilder &b, Value shared, Value row,
                          Value column) const;

private:
  Value chunkOffset(CudaBuilder &b, Value row, Value chunk) const;
};

} // namespace mlir::prefill::cuda

#endif // PREFILL_CODEGEN_CUDA_ACCUMULATORSTAGE_H
