//===- TileTable.cpp - tile sizes of CPU kernels --------------------------===//
#include "prefill/Codegen/CPU/TileTable.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"
#include <limits>
#include <numeric>

using namespace mlir;
using namespace mlir::prefill;

static constexpr int64_t kBlockN[] = {128, 96, 64, 32};
// Measured on Zen 4 (L2 1 MiB): 192 and 256 rows are level; with 64 and 128 a
// long K (14336) loses 3 to 7 %, because each chunk reads the weight's tile
// anew. 128 and 256 columns are level.
static constexpr int64_t kMinBlockM = 64, kMaxBlockM = 256;
// The rows of the largest microkernel that all ISAs divide into but one.
static constexpr int64_t kRowUnit = 8;
static constexpr int64_t kMinPassBytes = 1024;

CpuTileSizes prefill::cpuTileSizes(const CpuCaches &caches, bool plain) {
  CpuTileSizes sizes;
  if (plain) {
    sizes.gemmBlockM = 8;
    sizes.blockN = {kPanelN};
    sizes.gemmPassBytes = std::numeric_limits<int64_t>::max();
    sizes.int8PassK = std::numeric_limits<int64_t>::max();
    sizes.gemmInputBytes = std::numeric_limits<int64_t>::max();
    sizes.rowwiseBlockM = 1;
    return sizes;
  }
  sizes.blockN.assign(std::begin(kBlockN), std::end(kBlockN));
  sizes.gemmBlockM = std::clamp<int64_t>(
      llvm::alignDown(caches.l2 / 8 / sizeof(float) / kBlockN[0], kRowUnit),
      kMinBlockM, kMaxBlockM);
  sizes.gemmPassBytes = std::max<int64_t>(
      llvm::bit_floor(uint64_t(caches.l2 / sizes.gemmBlockM)), kMinPassBytes);
  // vpdpbusd takes four k where a multiply-add takes one, so that the second
  // cache has a quarter of the time for the same bytes. Measured on Emerald
  // Rapids (48 KiB, which gives 1024), K = 2048 and 8192: 512 is 1 % behind,
  // 2048 up to 25 %.
  sizes.int8PassK = llvm::bit_floor(uint64_t(caches.l1 * 2 / 3 / kPanelN));
  // The weight streams well, fetched a panel ahead, but rows that leave the
  // cache do not: 2 MiB gain 2 to 4 % over 16 at K = 2048 and 2048 rows.
  sizes.gemmInputBytes = std::min(2 * caches.l2, caches.l3 / 2);
  sizes.rowwiseBlockM = 8;
  return sizes;
}

int64_t prefill::selectGroupM(const CpuTileSizes &sizes, int64_t blockM,
                              int64_t rowBytes) {
  return std::max(sizes.gemmInputBytes / rowBytes / blockM, int64_t(1)) *
         blockM;
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
