//===- BufferPacking.cpp - offsets of buffers in one arena ----------------===//
#include "prefill/Analysis/BufferPacking.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir::prefill;
using llvm::ArrayRef;
using llvm::SmallVector;

BufferPacking mlir::prefill::packBuffers(ArrayRef<BufferLifetime> buffers,
                                         int64_t alignment) {
  auto order = llvm::to_vector(llvm::seq<size_t>(0, buffers.size()));
  llvm::sort(order, [&](size_t a, size_t b) {
    return buffers[a].bytes != buffers[b].bytes
               ? buffers[a].bytes > buffers[b].bytes
               : a < b;
  });

  BufferPacking packing;
  packing.offsets.resize(buffers.size(), 0);
  SmallVector<size_t> placed;
  for (size_t index : order) {
    const BufferLifetime &buffer = buffers[index];
    int64_t size = llvm::alignTo(buffer.bytes, alignment);
    // Those that live at the same time, by offset: the first gap that is wide
    // enough.
    SmallVector<size_t> neighbours(
        llvm::make_filter_range(placed, [&](size_t other) {
          return buffers[other].first <= buffer.last &&
                 buffer.first <= buffers[other].last;
        }));
    llvm::sort(neighbours, [&](size_t a, size_t b) {
      return packing.offsets[a] < packing.offsets[b];
    });
    int64_t offset = 0;
    for (size_t other : neighbours) {
      if (packing.offsets[other] - offset >= size)
        break;
      offset = std::max<int64_t>(
          offset, packing.offsets[other] +
                      llvm::alignTo(buffers[other].bytes, alignment));
    }
    packing.offsets[index] = offset;
    packing.totalBytes = std::max(packing.totalBytes, offset + size);
    placed.push_back(index);
  }
  return packing;
}

BufferPacking
mlir::prefill::packBuffersWithoutReuse(ArrayRef<BufferLifetime> buffers,
                                       int64_t alignment) {
  BufferPacking packing;
  for (const BufferLifetime &buffer : buffers) {
    packing.offsets.push_back(packing.totalBytes);
    packing.totalBytes += llvm::alignTo(buffer.bytes, alignment);
  }
  return packing;
}

int64_t mlir::prefill::peakLiveBytes(ArrayRef<BufferLifetime> buffers,
                                     int64_t alignment) {
  // The peak is reached where some buffer's life begins.
  int64_t peak = 0;
  for (const BufferLifetime &start : buffers) {
    int64_t live = 0;
    for (const BufferLifetime &buffer : buffers)
      if (buffer.first <= start.first && start.first <= buffer.last)
        live += llvm::alignTo(buffer.bytes, alignment);
    peak = std::max(peak, live);
  }
  return peak;
}
