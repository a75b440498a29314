//===- PackedWeights.h - how a packed weight is described -------*- C++ -*-===//
#ifndef PREFILL_CODEGEN_COMMON_PACKEDWEIGHTS_H
#define PREFILL_CODEGEN_COMMON_PACKEDWEIGHTS_H

#include "llvm/ADT/StringRef.h"

namespace mlir::prefill {

/// Discardable i64 on a gemm whose weight is packed: group_n of its
/// #prefill.pack, when that isn't all of N.
inline constexpr llvm::StringLiteral kGroupNAttr = "prefill.group_n";

/// Discardable i64 on a gemm: k of one pass over a tile's operands, so that
/// they stay in a cache; sums go on where the pass before left them. Absent:
/// one pass over all of K.
inline constexpr llvm::StringLiteral kBlockKAttr = "prefill.block_k";

/// Discardable i64 on a gemm: rows, a multiple of block_m, that take all tiles
/// of columns before the next rows do. Absent: all rows.
inline constexpr llvm::StringLiteral kGroupMAttr = "prefill.group_m";

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_COMMON_PACKEDWEIGHTS_H
