//===- GemmKernel.h - a tile GEMM, right or broken on purpose ---*- C++ -*-===//
#ifndef PREFILL_TEST_EMULATION_GEMMKERNEL_H
#define PREFILL_TEST_EMULATION_GEMMKERNEL_H

#include <cstdint>
#include <string>
#include <vector>

namespace prefill_test {

enum class GemmMutant {
  none,
  noArrivalBarrier, ///< tiles are read before the other warps' copies
  noReuseBarrier,   ///< tiles are overwritten while they are read
  weakWait,         ///< one group more stays open
  noWait,
  noCommit,
  loadUnswizzled,  ///< B is swizzled when written, not when read
  rowBeyondEnd,    ///< A's row M is copied
  storeBeyondEnd,  ///< C's row M is stored
  wrongStage,      ///< copies go to the stage that is being read
  sourceShifted,   ///< 16 bytes from an address that is a multiple of 8
  tooManyBytes,    ///< source bytes 32
  noStagedBarrier, ///< the epilogue's tile is read before it is written
  stagingTooLarge, ///< pitch 288: past the end of the window
  prefetchTooFar,  ///< copies nobody waits for
  sameTile,        ///< two blocks compute the same tile
  unalignedTile,   ///< rows 8 bytes further
  warpExits,       ///< a warp without rows returns early
  barrierInBranch, ///< only warps with rows reach the barrier
  unwrittenRows,   ///< rows past M are not copied at all
  oneWarpLess,     ///< the barrier is for 96 threads
};

/// C[M, N] = A[M, K] B[N, K]^T in bf16 with f32 sums: 64x64 tiles, K by 32, two
/// stages by cp.async, swizzled shared memory, ldmatrix, and an epilogue that
/// goes through shared memory. 128 threads; N a multiple of 64, K of 32.
/// Words: A, B, C, M, N, K. One workgroup for each tile, N first.
/// Sites: gemm.{copy_a, copy_b, wait, arrived, load_a, load_b, mma, reuse,
/// stage_store, staged, stage_load, store}.
std::string gemmKernel(GemmMutant mutant = GemmMutant::none);

inline constexpr int gemmTile = 64, gemmDepth = 32;

} // namespace prefill_test

#endif // PREFILL_TEST_EMULATION_GEMMKERNEL_H
