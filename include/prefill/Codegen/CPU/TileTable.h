//===- TileTable.h - tile sizes of CPU kernels ------------------*- C++ -*-===//
// select-lowering-strategy reads them; kernels take what lowering_config says.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CPU_TILETABLE_H
#define PREFILL_CODEGEN_CPU_TILETABLE_H

#include "prefill/Codegen/CPU/CpuCaches.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>

namespace mlir::prefill {

inline constexpr int64_t kCacheLineBytes = 64;

/// Steps of an iteration of a gemm's tallest microkernel of f32 multiply-adds,
/// or of 8-bit integers, where the steps of every pass are a multiple of it.
/// Measured on Emerald Rapids at 512 rows with 1 and 4: f32 0.85 and 0.88 of
/// the peak, bf16 on AVX2 0.77 and 0.82; 8 is level. Few rows, which are bound
/// by memory, and attention (1 % there) go without, as does vdpbf16ps, of which
/// CPUs do half as many a cycle, so that there is room for what else a step
/// takes.
inline constexpr int64_t kFmaUnroll = 4;

/// A weight that streams from memory is asked for this far ahead of its use,
/// into the second-level cache, where arithmetic takes about as long as memory:
/// from so many cycles of multiply-adds for a line on. Measured on Zen 4, bf16,
/// one thread, as a part of the read bandwidth with and without: 0.99 and 0.86
/// at 7 rows (7 cycles), 0.92 and 0.79 at 8; below, the processor's own
/// prefetcher does better, 0.72 and 1.04 at 3.
inline constexpr int64_t kWeightPrefetchBytes = 12288;
inline constexpr int64_t kWeightPrefetchCycles = 7;

/// Sums of a microkernel for few rows (GemmFewRows). Up to the first number it
/// takes a whole panel, line after line: 16 registers hold them beside the
/// operands. Where panels are read side by side (CpuIsa), there are as many of
/// them as make the second number of sums, which 16 registers do not hold:
/// streams are worth more than that, one row of bf16 reads 12, 16 and 19 GB/s
/// of 1, 3 and 4 panels on Zen 3, the latter two with spills.
inline constexpr int64_t kWholePanelSums = 8;
inline constexpr int64_t kSideBySideSums = 16;

/// Most k of a pass of a gemm on AMX tiles: its part of a panel, 32 KiB, stays
/// in the first-level cache while the rows pass by. Measured on Emerald Rapids
/// (48 KiB), K = 2048 and 8192: 512 is ahead of 256, 1024 and 2048.
inline constexpr int64_t kAmxBlockK = 512;

/// Where a weight is copied to f32 (`CpuIsa::widensWeight`): most k of a pass,
/// of which the copy of a microkernel's rows takes a third of Emerald Rapids'
/// first-level cache and that of 128 columns an eighth of its second, and rows
/// from which on the copy is worth its time (a prototype loses a tenth at 40
/// and gains a twentieth at 128).
inline constexpr int64_t kWidenBlockK = 512;
inline constexpr int64_t kWidenMinRows = 64;

struct CpuTileSizes {
  /// Rows of a gemm's workgroup: a tile of f32 accumulators of the widest
  /// block_n takes an eighth of the second-level cache.
  int64_t gemmBlockM;
  /// Widths of a tile, best first; multiples of a panel.
  llvm::SmallVector<int64_t> blockN;
  /// Bytes of a row of the input that a pass over a tile reads: with all its
  /// rows they fill the second-level cache.
  int64_t gemmPassBytes;
  /// k of a pass of a gemm of 8-bit integers: its part of a panel stays in the
  /// first-level cache while the rows pass by, beside those of a microkernel.
  int64_t int8PassK;
  /// Bytes of a gemm's input that stay in a cache while the weight passes by.
  int64_t gemmInputBytes;
  /// Rows of a rowwise op's workgroup.
  int64_t rowwiseBlockM;
};

/// Row counts that a batch is padded to: there is a microkernel of every
/// height, so that padding only costs.
inline constexpr int64_t kCpuRowBuckets[] = {1};

/// Sizes for those caches. `plain`: the smallest tiles, what tiling is compared
/// against.
CpuTileSizes cpuTileSizes(const CpuCaches &caches = {}, bool plain = false);

/// Rows that take all tiles of columns before the next rows do: a multiple of
/// block_m. `rowBytes`: of a row of the gemm's input.
int64_t selectGroupM(const CpuTileSizes &sizes, int64_t blockM,
                     int64_t rowBytes);

/// Columns of a tile and what is padded together when the weight is packed.
struct ColumnTiling {
  int64_t blockN;
  int64_t groupN;
};

/// `parts`: widths of the neighbouring parts of the columns, which no tile may
/// straddle. `unit`: columns that stay together (a head), 0 for none.
/// `granularity`: interleaved runs of which a tile takes pairs, 0 for none.
/// blockN is 0 where nothing fits.
ColumnTiling selectColumnTiling(const CpuTileSizes &sizes,
                                llvm::ArrayRef<int64_t> parts, int64_t unit,
                                int64_t granularity);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_TILETABLE_H
