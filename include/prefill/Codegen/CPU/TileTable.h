//===- TileTable.h - tile sizes of CPU kernels ------------------*- C++ -*-===//
// select-lowering-strategy reads them; kernels take what lowering_config says.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CPU_TILETABLE_H
#define PREFILL_CODEGEN_CPU_TILETABLE_H

#include "llvm/ADT/ArrayRef.h"
#include <cstdint>

namespace mlir::prefill {

struct CpuTileSizes {
  /// Rows of a gemm's workgroup. The tile of f32 accumulators, gemm_block_m x
  /// block_n, stays in the second-level cache beside the weight's panels.
  int64_t gemmBlockM;
  /// Widths of a tile, best first; multiples of a panel.
  llvm::ArrayRef<int64_t> blockN;
  /// Rows of a rowwise op's workgroup.
  int64_t rowwiseBlockM;
};

/// Sizes for a second-level cache of at least 512 KiB and a first-level cache
/// of 32 KiB, which every x86-64-v3 server core has. `plain`: the smallest
/// tiles, what tiling is compared against.
const CpuTileSizes &cpuTileSizes(bool plain = false);

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
