//===- TileScheduler.h - the order of a gemm's tiles ------------*- C++ -*-===//
//
// Blocks start in the order of their numbers, a wave at a time. prefill-tile
// numbers tiles row chunk by row chunk within a group of rows, then column by
// column, then group by group (kGroupMAttr): a wave is then a patch of the
// output, and what it loads is the patch's rows of A and columns of B, once
// from memory and after that from the second-level cache. There is one block
// for each tile; blocks past the last one do nothing.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_TILESCHEDULER_H
#define PREFILL_CODEGEN_CUDA_TILESCHEDULER_H

#include "prefill/Codegen/CUDA/GemmTileTable.h"

namespace mlir::prefill {

/// Rows of a group, a multiple of block_m: those for which a wave's patch is as
/// near to a square as whole tiles allow, so that it loads the least.
int64_t selectGroupRows(const CudaChip &chip, const GemmTile &tile);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CUDA_TILESCHEDULER_H
