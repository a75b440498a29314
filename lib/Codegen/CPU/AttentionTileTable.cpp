//===- AttentionTileTable.cpp - tile sizes of attention on a CPU ----------===//
#include "prefill/Codegen/CPU/AttentionTileTable.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::prefill;

// What a workgroup touches again for every KV block: query and f32 accumulator
// of all rows of the group, and the packed block. The other half of the
// second-level cache is for the KV cache's own rows on their way in (or, where
// bf16 is copied as f32, for the copies' other halves: one tile for all ISAs).
static int64_t workingSetBytes(const CpuCaches &caches) {
  return caches.l2 / 2;
}
// A block of keys is packed once and used by all rows: with fewer rows packing
// shows, with more a short prompt has too few workgroups for its threads.
static constexpr int64_t kTargetRows = 256;
static constexpr int64_t kMinBlockQ = 8;
static constexpr int64_t kMaxBlockQ = 128;
// Longer blocks amortise the rescaling of the accumulator. Zen 4, one thread,
// bf16, 8192 tokens, 4 query heads a KV head, fractions of the vdpbf16ps probe:
//                      64 x 256  64 x 512  64 x 1024  128 x 256  128 x 512
//   head_dim 64,  contiguous  0.827  0.821  0.821  0.827  0.835
//   head_dim 128, contiguous  0.855  0.851  0.863  0.872  0.880
//   head_dim 64,  paged_vnni  0.854    -      -      -    0.857
//   head_dim 128, paged_vnni  0.894    -      -      -    0.891
// At 512 tokens 64 x 256 is ahead of all of them, and it has twice the
// workgroups of 128 rows.
static constexpr int64_t kBlockKvs[] = {256, 128, 64, 32};

// 32 registers hold 8 x 2 accumulators, the 8 running maxima, the operands and
// nothing else; 12 or 14 rows were no faster in a prototype. AVX2 has 16
// registers: 6 x 2 accumulators leave 4 for the operands. The maxima wait on
// the stack meanwhile. (4 x 2 are just what hides a multiply-add's latency: 3
// to 5 % slower on Zen 3 with head_dim 128.) Few rows, short queries, take the
// smaller kernels.
static constexpr int64_t kMicroRows512[] = {kAttentionMicroRows, 4, 1};
static constexpr int64_t kMicroRows256[] = {6, 4, 1};

llvm::ArrayRef<int64_t> prefill::attentionMicroRows(const CpuIsa &isa) {
  return isa.lanes >= 16 ? llvm::ArrayRef(kMicroRows512)
                         : llvm::ArrayRef(kMicroRows256);
}

AttentionTile prefill::attentionTile(KVCacheType cache, int64_t group,
                                     const CpuCaches &caches, bool plain) {
  if (plain)
    return {kMinBlockQ, kPanelN};
  int64_t workingSet = workingSetBytes(caches);
  int64_t elementBytes =
      llvm::divideCeil(cache.getDtype().getIntOrFloatBitWidth(), 8);
  int64_t blockQ = llvm::PowerOf2Ceil(llvm::divideCeil(kTargetRows, group));
  blockQ = std::clamp(blockQ, kMinBlockQ, kMaxBlockQ);
  int64_t rowBytes = group * (cache.getHeadDimQk() * elementBytes +
                              llvm::alignTo(cache.getHeadDimV(), kPanelN) * 4);
  while (blockQ > kMinBlockQ && blockQ * rowBytes > workingSet / 2)
    blockQ /= 2;
  int64_t keyBytes =
      (cache.getHeadDimQk() + llvm::alignTo(cache.getHeadDimV(), kPanelN)) *
      elementBytes;
  for (int64_t blockKv : kBlockKvs)
    if (blockQ * rowBytes + blockKv * keyBytes <= workingSet)
      return {blockQ, blockKv};
  return {blockQ, kPanelN};
}
