//===- Mainloop.h - the sums of a gemm's tile -------------------*- C++ -*-===//
//
// After CUTLASS: the mainloop is a part of its own, so that another one (TMA,
// wgmma) can take its place; it hands over a warp's sums as fragments of
// m16n8k16 and leaves shared memory to the epilogue. K is summed in ascending
// steps of 16, the same for every tile.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_MAINLOOP_H
#define PREFILL_CODEGEN_CUDA_MAINLOOP_H

#include "prefill/Codegen/CUDA/GemmTileTable.h"
#include "prefill/Codegen/CUDA/KernelFrame.h"

namespace mlir::prefill::cuda {

/// What a block multiplies: rows of `input` [M, K] and of `weight` [N, K].
struct MainloopOperands {
  Value input, weight; // pointers
  Type element;
  int64_t k;         // a multiple of 8
  Value firstRow;    // index
  Value firstColumn; // index
  Value rowCount;    // i32: of existing rows of the tile, at least 1
  Value columnCount; // i32: of existing columns; null: all of the tile
};

class Mainloop {
public:
  virtual ~Mainloop() = default;
  /// Bytes of shared memory, from the window's byte `sharedOffset` on.
  virtual int64_t sharedBytes() const = 0;
  /// Starts what takes long; what is emitted between `begin` and `run` hides
  /// behind it. It must not touch the mainloop's shared memory.
  virtual void begin() = 0;
  /// The warp's sums: fragment (i, j) covers rows 16 i and columns 8 j of the
  /// warp's tile, its four f32 are at (i * warpColumns / 8 + j) * 4. All
  /// threads may write the shared memory after the next barrier.
  virtual SmallVector<Value> run() = 0;
};

/// cp.async with several stages, ldmatrix and mma.sync: sm_80 and newer.
std::unique_ptr<Mainloop> createMultistageMainloop(CudaBuilder &b,
                                                   const KernelFrame &frame,
                                                   const GemmTile &tile,
                                                   MainloopOperands operands,
                                                   int64_t sharedOffset);

} // namespace mlir::prefill::cuda

#endif // PREFILL_CODEGEN_CUDA_MAINLOOP_H
