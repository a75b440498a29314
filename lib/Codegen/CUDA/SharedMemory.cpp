//===- SharedMemory.cpp - tiles in a block's shared memory ----------------===//
#include "prefill/Codegen/CUDA/SharedMemory.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::prefill;

static constexpr int64_t kBankChunks = 8; // of all 32 banks
static constexpr int64_t kRegionAlignment = 128;

int64_t SwizzledTile::group() const {
  int64_t largest = chunks & -chunks;
  return std::min(largest, kBankChunks);
}

// Rows begin `chunks` chunks apart: kBankChunks / group of them begin at
// different banks, then the pattern repeats with the next number to XOR.
Value SwizzledTile::permutation(CudaBuilder &b, Value row) const {
  int64_t g = group();
  if (g == 1)
    return b.i32(0);
  return b.bitAnd(b.divide(row, kBankChunks / g), g - 1);
}

Value SwizzledTile::offset(CudaBuilder &b, Value row, Value chunk) const {
  Value at = b.bitXor(chunk, permutation(b, row));
  return b.add(b.mul(row, pitch()), b.mul(at, kChunkBytes));
}

int64_t SharedAllocator::allocate(int64_t bytes) {
  int64_t begin = top;
  top = llvm::alignTo(begin + bytes, kRegionAlignment);
  return begin;
}
