//===- GemmTileTable.h - tiles of CUDA gemms --------------------*- C++ -*-===//
// select-lowering-strategy takes block_m and block_n from here; the rest of a
// tile follows from them and the chip.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_GEMMTILETABLE_H
#define PREFILL_CODEGEN_CUDA_GEMMTILETABLE_H

#include "prefill/Codegen/CUDA/ChipTable.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>
#include <string>

namespace mlir::prefill {

/// How a block computes block_m x block_n outputs, f16 or bf16 with f32 sums.
struct GemmTile {
  int64_t blockM, blockN;
  int64_t blockK; // of a stage
  int64_t stages;
  int64_t warpsM, warpsN;
  /// Rows and columns of a warp; together they may be more than block_n.
  int64_t warpRows, warpColumns;

  int64_t columns() const { return warpsN * warpColumns; }
  int64_t warps() const { return warpsM * warpsN; }
  int64_t threads() const { return warps() * kWarpThreads; }
  int64_t stageBytes() const { return (blockM + columns()) * blockK * 2; }
  int64_t mainloopBytes() const { return stages * stageBytes(); }
  /// A guess before ptxas counts them.
  int64_t registers() const;
};

/// Heights that a tile may have.
llvm::ArrayRef<int64_t> gemmBlockHeights();

/// The tile of that height and width on a chip; nullopt where it does not fit:
/// a height that is not in the table, a width above 256, shared memory.
std::optional<GemmTile> gemmTile(const CudaChip &chip, int64_t blockM,
                                 int64_t blockN);

/// What an epilogue demands of a tile's width.
struct GemmColumns {
  /// Widths of the neighbouring parts of the columns, which no tile may
  /// straddle.
  llvm::ArrayRef<int64_t> parts;
  int64_t unit = 0;        // columns that stay together (a head), 0: none
  int64_t granularity = 0; // interleaved runs of which a tile takes pairs
};

/// What somebody demands of a tile; 0: anything.
struct GemmTileLimits {
  int64_t blockM = 0;
  int64_t blockN = 0;
  int64_t widest = 0;
};

/// All tiles of the table that columns of an op and somebody's demands allow on
/// a chip.
llvm::SmallVector<GemmTile> gemmTiles(const CudaChip &chip,
                                      const GemmColumns &columns,
                                      const GemmTileLimits &limits = {});

/// Why an op with such columns cannot have that tile; nullopt where it can.
std::optional<std::string> whyNoGemmTile(const CudaChip &chip,
                                         const GemmColumns &columns,
                                         int64_t blockM, int64_t blockN);

/// The tile that is best over several row counts: the sum of its estimated
/// times, each over the least that a tile takes for that count, is the lowest.
/// nullopt where no width fits.
std::optional<GemmTile> selectGemmTile(const CudaChip &chip,
                                       llvm::ArrayRef<int64_t> rows, int64_t k,
                                       const GemmColumns &columns,
                                       const GemmTileLimits &limits = {});
/// The smallest tile that the columns allow: what tiling is compared against.
std::optional<GemmTile> smallestGemmTile(const CudaChip &chip,
                                         const GemmColumns &columns);
/// That estimate, in cycles.
double estimatedGemmCycles(const CudaChip &chip, const GemmTile &tile,
                           int64_t rows, int64_t columns, int64_t k);

/// Width of a rowwise op's tile: at most the 256 columns of a warp's lanes.
/// `unit` as above; 0 where a head is too wide.
int64_t selectRowwiseWidth(int64_t columns, int64_t unit);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CUDA_GEMMTILETABLE_H
