//===- KVBlocks.h - how loops over KV blocks are marked ---------*- C++ -*-===//
#ifndef PREFILL_DIALECT_PREFILL_TRANSFORMS_KVBLOCKS_H
#define PREFILL_DIALECT_PREFILL_TRANSFORMS_KVBLOCKS_H

#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {

/// Discardable string on a KV loop, the scf.for around an online_attention:
/// which blocks it runs over. A loop without it runs over all of them.
inline constexpr llvm::StringLiteral kKVBlocksAttr = "prefill.kv_blocks";

/// The attribute's value for a loop whose blocks have this mask.
inline llvm::StringRef kvBlocksName(BlockMask mask) {
  return mask == BlockMask::None ? "full" : "edge";
}

} // namespace mlir::prefill

#endif // PREFILL_DIALECT_PREFILL_TRANSFORMS_KVBLOCKS_H
