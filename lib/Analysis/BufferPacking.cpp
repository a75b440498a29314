//===- BufferPacking.cpp - offsets of buffers in one arena ----------------===//
#include "prefill/Analysis/BufferPacking.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir::prefill;
using llvm::ArrayRef;
using llvm::SmallVector;

/// Bytes of the buffers that live in `step`.
static int64_t liveBytes(ArrayRef<BufferLifetime> buffers, int64_t step,
                         int64_t alignment) {
  int64_t live = 0;
  for (const BufferLifetime &buffer : buffers)
    if (buffer.first <= step && step <= buffer.last)
      live += llvm::alignTo(buffer.bytes, alignment);
  return live;
}

/// Each buffer in the given order at the lowest offset that is free during its
/// life.
static BufferPacking packInOrder(ArrayRef<BufferLifetime> buffers,
                                 ArrayRef<size_t> order, int64_t alignment) {
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

BufferPacking mlir::prefill::packBuffers(ArrayRef<BufferLifetime> buffers,
                                         int64_t alignment) {
  // Of each buffer, the bytes that live in the fullest step of its life. They
  // are most where one begins.
  SmallVector<int64_t> breadth(buffers.size(), 0);
  for (const BufferLifetime &start : buffers) {
    int64_t live = liveBytes(buffers, start.first, alignment);
    for (auto [index, buffer] : llvm::enumerate(buffers))
      if (buffer.first <= start.first && start.first <= buffer.last)
        breadth[index] = std::max(breadth[index], live);
  }
  auto bySize = [&](size_t a, size_t b) {
    return buffers[a].bytes != buffers[b].bytes
               ? buffers[a].bytes > buffers[b].bytes
               : a < b;
  };
  auto byBreadth = [&](size_t a, size_t b) {
    return breadth[a] != breadth[b] ? breadth[a] > breadth[b] : bySize(a, b);
  };

  auto order = llvm::to_vector(llvm::seq<size_t>(0, buffers.size()));
  llvm::sort(order, byBreadth);
  BufferPacking breadthFirst = packInOrder(buffers, order, alignment);
  llvm::sort(order, bySize);
  BufferPacking sizeFirst = packInOrder(buffers, order, alignment);
  return sizeFirst.totalBytes < breadthFirst.totalBytes ? sizeFirst
                                                        : breadthFirst;
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
  for (const BufferLifetime &start : buffers)
    peak = std::max(peak, liveBytes(buffers, start.first, alignment));
  return peak;
}
