//===- AttentionTileTable.h - tile sizes of attention on a CPU --*- C++ -*-===//
// Numbers about hardware; prefill-select-lowering-strategy writes them into the
// lowering_config of attention ops.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CPU_ATTENTIONTILETABLE_H
#define PREFILL_CODEGEN_CPU_ATTENTIONTILETABLE_H

#include "prefill/Codegen/CPU/CpuCaches.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {

struct AttentionTile {
  int64_t blockQ;  ///< query rows of a workgroup
  int64_t blockKv; ///< keys of a step; a multiple of 32
};

/// Tile of attention over `cache` with `group` query heads for each KV head,
/// for a core whose second-level cache is twice what a workgroup touches.
/// `plain`: the smallest one, what tiling is compared against.
AttentionTile attentionTile(KVCacheType cache, int64_t group,
                            const CpuCaches &caches = {}, bool plain = false);

/// Rows of the largest microkernel of attention for any variant.
inline constexpr int64_t kAttentionMicroRows = 8;

/// Rows of the microkernels of a variant, the largest first; the last is 1.
/// With two vectors of columns each.
llvm::ArrayRef<int64_t> attentionMicroRows(const CpuIsa &isa);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_ATTENTIONTILETABLE_H
