//===- PackedWeights.h - how a packed weight is described -------*- C++ -*-===//
#ifndef PREFILL_CODEGEN_COMMON_PACKEDWEIGHTS_H
#define PREFILL_CODEGEN_COMMON_PACKEDWEIGHTS_H

#include "llvm/ADT/StringRef.h"

namespace mlir::prefill {

/// Discardable i64 on a gemm whose weight is packed: group_n of its
/// #prefill.pack, when that isn't all of N.
inline constexpr llvm::StringLiteral kGroupNAttr = "prefill.group_n";

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_COMMON_PACKEDWEIGHTS_H
