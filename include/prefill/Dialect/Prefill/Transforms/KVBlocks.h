//===- KVBlocks.h - how loops over KV blocks are marked ---------*- C++ -*-===//
#ifndef PREFILL_DIALECT_PREFILL_TRANSFORMS_KVBLOCKS_H
#define PREFILL_DIALECT_PREFILL_TRANSFORMS_KVBLOCKS_H

#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {

/// Discardable string on a KV loop, the scf.for around an online_attention:
/// which blocks it runs over. A loop without it runs over all of them, of a
/// split over all of the split's.
inline constexpr llvm::StringLiteral kKVBlocksAttr = "prefill.kv_blocks";

/// The attribute's value for a loop whose blocks have this mask.
inline llvm::StringRef kvBlocksName(BlockMask mask) {
  return mask == BlockMask::None ? "full" : "edge";
}

/// What ends attention over one split behind its KV loop; null where the loop
/// runs over the keys of all.
inline AttentionPartialOp findPartial(Operation *loop) {
  for (Operation *user : loop->getUsers())
    if (auto partial = dyn_cast<AttentionPartialOp>(user))
      return partial;
  return {};
}

} // namespace mlir::prefill

#endif // PREFILL_DIALECT_PREFILL_TRANSFORMS_KVBLOCKS_H
