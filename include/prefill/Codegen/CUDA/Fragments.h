//===- Fragments.h - which lane holds what of a matrix ----------*- C++ -*-===//
//
// mma.sync m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"): with
// g = lane / 4 and t = lane % 4 a lane holds of the sums, four f32,
//   rows g, g, g + 8, g + 8 and columns 2t, 2t + 1, 2t, 2t + 1.
// Operands are read from swizzled tiles by ldmatrix.x4. A tile's rows are rows
// of A (m), or columns of B (n), and its chunks run along k; "transposed" is
// B with k along the rows, as V of attention lies.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_FRAGMENTS_H
#define PREFILL_CODEGEN_CUDA_FRAGMENTS_H

#include "prefill/Codegen/CUDA/SharedMemory.h"

namespace mlir::prefill {

inline constexpr int64_t kMmaM = 16, kMmaN = 8, kMmaK = 16;
/// Numbers of 16 bits in a chunk.
inline constexpr int64_t kChunkElements = 8;

/// Row and column (i32) of sum `e` (0 to 3) of a lane in the 16x8 tile.
Value sumRow(CudaBuilder &b, Value lane, int64_t e);
Value sumColumn(CudaBuilder &b, Value lane, int64_t e);

class FragmentReader {
public:
  enum class Operand {
    A,           // 16 rows, one k step: the four words of A
    B,           // 16 rows (n), one k step: B of columns 0-7, then of 8-15
    BTransposed, // 16 rows (k), 16 columns (n): B of columns 0-7, then of 8-15
  };
  /// Computes a lane's addresses at the builder's place, which must dominate
  /// all uses. `firstRow` (i32, a multiple of 8) is where the warp's rows
  /// begin.
  FragmentReader(CudaBuilder &b, const SwizzledTile &tile, Operand operand,
                 Value lane, Value firstRow);

  /// Four words: 16 rows from `row` on, a multiple of 16, and chunks
  /// 2 * `chunkPair` and the next. `shared` is where the tile begins.
  SmallVector<Value> load(CudaBuilder &b, Value shared, int64_t row,
                          int64_t chunkPair, StringRef site) const;

private:
  SwizzledTile tile;
  Operand operand;
  Value rowOffset;   // bytes
  Value chunkOffset; // bytes, permuted; XOR with those of the pair
};

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CUDA_FRAGMENTS_H
