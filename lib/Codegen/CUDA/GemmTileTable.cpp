//===- GemmTileTable.cpp - tiles of CUDA gemms ----------------------------===//
#include "prefill/Codegen/CUDA/GemmTileTable.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <limits>
#include <numeric>

using namespace mlir;
using namespace mlir::prefill;

/// Tall tiles share more of what they load. Low ones are for few rows, where
/// the weight streams from memory: longer rows and more stages keep more bytes
/// on their way.
struct HeightEntry {
  int64_t blockM, warpsM, blockK, maxStages;
};
static constexpr HeightEntry kHeights[] = {
    {128, 2, 32, 4}, {64, 2, 32, 4}, {32, 1, 64, 6}, {16, 1, 64, 6}};
static constexpr int64_t kHeightList[] = {128, 64, 32, 16};

static constexpr int64_t kWidths[] = {256, 192, 128, 96, 64, 48, 32, 16};
static constexpr int64_t kMaxWidth = 256;
/// Two tiles of m16n8k16 wide: what one ldmatrix.x4 of B serves.
static constexpr int64_t kWarpColumnUnit = 16;
static constexpr int64_t kMaxWarpColumns = 64;
static constexpr int64_t kWarps = 4;
/// A row scale for each row, behind the stages; so aligned.
static constexpr int64_t kRowScaleBytes = 512;
/// Columns of a rowwise op's tile: 8 a lane.
static constexpr int64_t kLaneColumns = 8;

llvm::ArrayRef<int64_t> prefill::gemmBlockHeights() { return kHeightList; }

int64_t GemmTile::registers() const {
  // Accumulators, fragments of A and B for one k step, addresses.
  int64_t sums = warpRows * warpColumns / kWarpThreads;
  int64_t fragments = warpRows / 4 + warpColumns / 4;
  return std::min<int64_t>(sums + fragments + 64, kMaxThreadRegisters);
}

std::optional<GemmTile> prefill::gemmTile(const CudaChip &chip, int64_t blockM,
                                          int64_t blockN) {
  const auto *height = llvm::find_if(kHeights, [&](const HeightEntry &entry) {
    return entry.blockM == blockM;
  });
  if (height == std::end(kHeights) || blockN < kLaneColumns ||
      blockN > kMaxWidth || blockN % kLaneColumns != 0)
    return std::nullopt;
  GemmTile tile;
  tile.blockM = blockM;
  tile.blockN = blockN;
  tile.blockK = height->blockK;
  tile.warpsM = height->warpsM;
  tile.warpRows = blockM / tile.warpsM;
  int64_t units = llvm::divideCeil(blockN, kWarpColumnUnit);
  // As many warps as share the columns with the least waste; twice as many for
  // wide tiles.
  int64_t mostWarps = kWarps / tile.warpsM;
  if (blockN > mostWarps * kMaxWarpColumns)
    mostWarps *= 2;
  int64_t leastUnits = std::numeric_limits<int64_t>::max();
  for (int64_t warps = std::min(mostWarps, units); warps > 0; --warps) {
    int64_t warpUnits = llvm::divideCeil(units, warps);
    if (warpUnits * kWarpColumnUnit > kMaxWarpColumns ||
        warpUnits * warps >= leastUnits)
      continue;
    leastUnits = warpUnits * warps;
    tile.warpsN = warps;
    tile.warpColumns = warpUnits * kWarpColumnUnit;
  }
  // Two blocks of an SM hide each other's barriers and epilogues where both
  // have room for two stages at least.
  for (int64_t blocks : {2, 1}) {
    int64_t budget = std::min(chip.sharedPerBlock,
                              chip.sharedPerSM / blocks - kReservedSharedBytes);
    int64_t stages = std::min(height->maxStages,
                              (budget - kRowScaleBytes) / tile.stageBytes());
    tile.stages = stages;
    if (stages >= (blocks == 2 ? 3 : 2))
      return tile;
  }
  return std::nullopt;
}

/// The time of a block is that of its multiplications, or of the bytes that it
/// loads from the second-level cache where those take longer; both shared by
/// the blocks of an SM. A launch takes whole waves.
double prefill::estimatedGemmTime(const CudaChip &chip, const GemmTile &tile,
                                  int64_t rows, int64_t columns) {
  int64_t blocks = llvm::divideCeil(rows, tile.blockM) *
                   llvm::divideCeil(columns, tile.blockN);
  int64_t perSM =
      std::max<int64_t>(1, blocksPerSM(chip, tile.threads(),
                                       tile.mainloopBytes(), tile.registers()));
  // An SM with fewer warps than four schedulers need leaves cores idle; with
  // one warp each, latencies show.
  double warps = double(perSM * tile.warps());
  double busy = std::min(1.0, 0.5 + warps / 16);
  double multiply = double(tile.blockM * tile.columns()) / busy;
  // Second-level cache: about 5000 bytes a cycle for the chip; an SM
  // multiplies 1024 pairs of f16 a cycle.
  constexpr double multipliesPerByte = 1024.0 / 48;
  double load = 2.0 * double(tile.blockM + tile.columns()) * multipliesPerByte;
  double waves = double(llvm::divideCeil(blocks, chip.sms * perSM));
  return waves * double(perSM) * std::max(multiply, load);
}

/// Whether a tile of `width` columns cuts no head, run or part.
static bool fits(const GemmColumns &columns, int64_t width) {
  if (columns.unit && width % columns.unit != 0)
    return false;
  if (columns.granularity && width % (2 * columns.granularity) != 0)
    return false;
  // One part may end within its last tile.
  return columns.parts.size() == 1 ||
         llvm::all_of(columns.parts,
                      [&](int64_t part) { return part % width == 0; });
}

/// Candidate widths: the table's, and multiples of a head of any size.
static llvm::SmallVector<int64_t> widthsFor(const GemmColumns &columns) {
  llvm::SmallVector<int64_t> widths;
  int64_t common = 0;
  for (int64_t part : columns.parts)
    common = std::gcd(common, part);
  if (columns.unit) {
    for (int64_t width = columns.unit; width <= kMaxWidth;
         width += columns.unit)
      widths.push_back(width);
  } else {
    widths.append(std::begin(kWidths), std::end(kWidths));
    // Parts that none of them divides.
    if (columns.parts.size() > 1 && common <= kMaxWidth)
      widths.push_back(common);
    if (columns.granularity && 2 * columns.granularity <= kMaxWidth)
      widths.push_back(2 * columns.granularity);
  }
  llvm::erase_if(widths, [&](int64_t width) { return !fits(columns, width); });
  return widths;
}

std::optional<GemmTile> prefill::selectGemmTile(const CudaChip &chip,
                                                int64_t rows,
                                                const GemmColumns &columns) {
  int64_t total =
      std::accumulate(columns.parts.begin(), columns.parts.end(), int64_t(0));
  std::optional<GemmTile> best;
  double bestTime = 0;
  for (int64_t blockM : kHeightList)
    for (int64_t width : widthsFor(columns)) {
      std::optional<GemmTile> tile = gemmTile(chip, blockM, width);
      if (!tile)
        continue;
      double time = estimatedGemmTime(chip, *tile, rows, total);
      if (!best || time < bestTime) {
        best = tile;
        bestTime = time;
      }
    }
  return best;
}

int64_t prefill::selectRowwiseWidth(int64_t columns, int64_t unit) {
  int64_t widest = kWarpThreads * kLaneColumns;
  if (unit)
    return widest / unit * unit;
  return std::min(widest, int64_t(llvm::alignTo(columns, kLaneColumns)));
}
