//===- SharedMemory.h - tiles in a block's shared memory --------*- C++ -*-===//
//
// A tile is rows of 16-byte chunks. Chunks of a row are permuted by the row
// (XOR), so that 8 neighbouring rows of one chunk lie in different banks: what
// ldmatrix reads at a time; and a row's chunks stay together: what cp.async
// writes at a time. Both are free of bank conflicts for every row length.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_SHAREDMEMORY_H
#define PREFILL_CODEGEN_CUDA_SHAREDMEMORY_H

#include "prefill/Codegen/CUDA/CudaBuilder.h"

namespace mlir::prefill {

struct SwizzledTile {
  int64_t rows = 0;
  int64_t chunks = 0; // of a row

  int64_t pitch() const { return chunks * kChunkBytes; } // bytes
  int64_t bytes() const { return rows * pitch(); }

  /// Chunks that a permutation stays within: the largest power of two that
  /// divides `chunks`, 8 (all banks) at most.
  int64_t group() const;
  /// Rows after which the permutation repeats.
  static constexpr int64_t kPeriod = 8;

  /// What chunk numbers of a row are XORed with (i32, from i32).
  Value permutation(CudaBuilder &b, Value row) const;
  /// Byte offset of a chunk (i32, from i32).
  Value offset(CudaBuilder &b, Value row, Value chunk) const;
};

/// Places regions in the window of shared memory.
class SharedAllocator {
public:
  /// Byte offset of a new region, aligned to 128.
  int64_t allocate(int64_t bytes);
  /// Of regions that may lie on top of another one: where that one begins.
  int64_t used() const { return top; }

private:
  int64_t top = 0;
};

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CUDA_SHAREDMEMORY_H
