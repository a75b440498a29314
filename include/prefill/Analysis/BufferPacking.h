//===- BufferPacking.h - offsets of buffers in one arena --------*- C++ -*-===//
#ifndef PREFILL_ANALYSIS_BUFFERPACKING_H
#define PREFILL_ANALYSIS_BUFFERPACKING_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>

namespace mlir::prefill {

/// A buffer that must keep its bytes from step `first` to step `last`, both
/// included: two that live in one step never overlap, so that an op's results
/// never overwrite its operands.
struct BufferLifetime {
  int64_t first = 0, last = 0;
  int64_t bytes = 0;
};

struct BufferPacking {
  /// Of each buffer, a multiple of the alignment.
  llvm::SmallVector<int64_t> offsets;
  /// Of the arena: the largest end of a buffer, a multiple of the alignment.
  int64_t totalBytes = 0;
};

/// First fit (Pisarchyk and Lee 2020, "Efficient memory management for deep
/// neural net inference"): each at the lowest offset that is free during its
/// life. Two orders are tried and the smaller result is kept: largest first,
/// and those of the fullest step first.
BufferPacking packBuffers(llvm::ArrayRef<BufferLifetime> buffers,
                          int64_t alignment);

/// Every buffer for itself, one behind the other.
BufferPacking packBuffersWithoutReuse(llvm::ArrayRef<BufferLifetime> buffers,
                                      int64_t alignment);

/// Largest sum of the (aligned) bytes of buffers that live in one step: no
/// packing is smaller.
int64_t peakLiveBytes(llvm::ArrayRef<BufferLifetime> buffers,
                      int64_t alignment);

} // namespace mlir::prefill

#endif // PREFILL_ANALYSIS_BUFFERPACKING_H
