//===- AttentionTileTable.cpp - tile sizes of attention on a CPU ----------===//
#include "prefill/Codegen/CPU/AttentionTileTable.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::prefill;

// What a workgroup touches again for every KV block: query and f32 accumulator
// of all rows of the group, and the packed block. Half of a second-level cache
// of 1 MiB (the smallest among the servers of the last years, Zen 4 and
// Skylake-SP) leaves room for the cache's own rows on their way in.
static constexpr int64_t kWorkingSetBytes = 512 * 1024;
// A block of keys is packed once and used by all rows: with fewer rows packing
// shows, with more a short prompt has too few workgroups for its threads.
static constexpr int64_t kTargetRows = 256;
static constexpr int64_t kMinBlockQ = 8;
static constexpr int64_t kMaxBlockQ = 128;
// Longer blocks amortise the rescaling of the accumulator; measured on a
// prototype, 256 to 1024 keys are within 3 % of each other.
static constexpr int64_t kBlockKvs[] = {256, 128, 64, 32};

// 32 registers hold 8 x 2 accumulators, the 8 running maxima, the operands and
// nothing else; 12 or 14 rows were no faster in a prototype. AVX2 has 16
// registers. Few rows, short queries, take the smaller kernels.
static constexpr int64_t kMicroRows512[] = {kAttentionMicroRows, 4, 1};
static constexpr int64_t kMicroRows256[] = {4, 1};

llvm::ArrayRef<int64_t> prefill::attentionMicroRows(const CpuIsa &isa) {
  return isa.lanes >= 16 ? llvm::ArrayRef(kMicroRows512)
                         : llvm::ArrayRef(kMicroRows256);
}

AttentionTile prefill::attentionTile(KVCacheType cache, int64_t group,
                                     bool plain) {
  if (plain)
    return {kMinBlockQ, kPanelN};
  int64_t elementBytes =
      llvm::divideCeil(cache.getDtype().getIntOrFloatBitWidth(), 8);
  int64_t blockQ = llvm::PowerOf2Ceil(llvm::divideCeil(kTargetRows, group));
  blockQ = std::clamp(blockQ, kMinBlockQ, kMaxBlockQ);
  int64_t rowBytes = group * (cache.getHeadDimQk() * elementBytes +
                              llvm::alignTo(cache.getHeadDimV(), kPanelN) * 4);
  while (blockQ > kMinBlockQ && blockQ * rowBytes > kWorkingSetBytes / 2)
    blockQ /= 2;
  int64_t keyBytes =
      (cache.getHeadDimQk() + llvm::alignTo(cache.getHeadDimV(), kPanelN)) *
      elementBytes;
  for (int64_t blockKv : kBlockKvs)
    if (blockQ * rowBytes + blockKv * keyBytes <= kWorkingSetBytes)
      return {blockQ, blockKv};
  return {blockQ, kPanelN};
}
