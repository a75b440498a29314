//===- AsyncCopy.h - global rows to a tile in shared memory -----*- C++ -*-===//
//
// All threads of a block copy one tile by cp.async, 16 bytes at a time:
// neighbouring threads take neighbouring chunks of a row, so that whole sectors
// are read. The caller says where the bytes come from and how many there are;
// the rest of a chunk becomes zeros.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_ASYNCCOPY_H
#define PREFILL_CODEGEN_CUDA_ASYNCCOPY_H

#include "prefill/Codegen/CUDA/SharedMemory.h"

namespace mlir::prefill {

class AsyncTileCopy {
public:
  /// Computes what is the same for every copy of such a tile, at the builder's
  /// place: it must dominate all uses. `thread` is in [0, threads).
  AsyncTileCopy(CudaBuilder &b, const SwizzledTile &tile, int64_t threads,
                Value thread);

  /// A chunk that this thread copies.
  struct Piece {
    Value row, chunk; // i32
    /// Whether there is such a chunk (i1); null: always.
    Value exists;
    /// Rows below the first piece's, when that is the same for all threads
    /// (and `chunk` is the same as well); -1 otherwise.
    int64_t rowsBelowFirst = -1;
    Value offset; // of the destination in the tile
  };
  ArrayRef<Piece> pieces() const { return all; }

  struct Source {
    Value pointer; // global
    Value bytes;   // i32; null: 16
  };
  /// Issues the copies of this thread into the tile that begins at `shared`.
  void issue(CudaBuilder &b, Value shared, StringRef site,
             llvm::function_ref<Source(const Piece &)> sourceOf) const;

private:
  SmallVector<Piece> all;
};

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CUDA_ASYNCCOPY_H
