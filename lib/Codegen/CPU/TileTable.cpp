//===- TileTable.cpp - tile sizes of CPU kernels --------------------------===//
#include "prefill/Codegen/CPU/TileTable.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <numeric>

using namespace mlir;
using namespace mlir::prefill;

static constexpr int64_t kBlockN[] = {128, 96, 64, 32};
static constexpr int64_t kPlainBlockN[] = {32};

// 64 x 128 f32 accumulators are 32 KiB. 64 rows of bf16 input at K = 4096 are
// 512 KiB, read once for each tile of 128 columns.
static const CpuTileSizes kSizes = {/*gemmBlockM=*/64, kBlockN,
                                    /*rowwiseBlockM=*/8};
static const CpuTileSizes kPlainSizes = {/*gemmBlockM=*/8, kPlainBlockN,
                                         /*rowwiseBlockM=*/1};

const CpuTileSizes &prefill::cpuTileSizes(bool plain) {
  return plain ? kPlainSizes : kSizes;
}

/// Tiles of whole units: as many as fit the widest tile, with the least
/// padding to whole panels.
static int64_t selectUnits(int64_t unitsOfPart, int64_t unit, int64_t widest) {
  int64_t best = 1;
  auto padding = [&](int64_t units) {
    int64_t columns = units * unit;
    return double(llvm::alignTo(columns, kPanelN)) / double(columns);
  };
  for (int64_t units = 2; units * unit <= widest; ++units)
    if (unitsOfPart % units == 0 && padding(units) <= padding(best))
      best = units;
  return best;
}

ColumnTiling prefill::selectColumnTiling(const CpuTileSizes &sizes,
                                         llvm::ArrayRef<int64_t> parts,
                                         int64_t unit, int64_t granularity) {
  int64_t total = std::accumulate(parts.begin(), parts.end(), int64_t(0));
  int64_t common = 0;
  for (int64_t part : parts)
    common = std::gcd(common, part);
  if (unit == 0) {
    // Without parts the last tile may be narrower than its panels.
    int64_t columns =
        parts.size() == 1 ? llvm::alignTo(total, kPanelN) : common;
    int64_t multiple = granularity ? 2 * granularity : 1;
    for (int64_t candidate : sizes.blockN)
      if (columns % candidate == 0 && candidate % multiple == 0)
        return {candidate, total};
    if (granularity)
      return {total % multiple == 0 && multiple % kPanelN == 0 ? multiple : 0,
              total};
    unit = common;
  }
  if (common % unit != 0 || granularity)
    return {0, 0};
  int64_t blockN =
      unit * selectUnits(common / unit, unit, sizes.blockN.front());
  return {blockN, blockN % kPanelN == 0 ? total : blockN};
}
