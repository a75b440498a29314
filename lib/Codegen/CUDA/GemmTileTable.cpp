//===- GemmTileTable.cpp - tiles of CUDA gemms ----------------------------===//
#include "prefill/Codegen/CUDA/GemmTileTable.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
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
  // have room, for their registers and for three stages.
  for (int64_t blocks : {2, 1}) {
    if (blocks * tile.threads() * tile.registers() > chip.registersPerSM)
      continue;
    int64_t budget = std::min(chip.sharedPerBlock,
                              chip.sharedPerSM / blocks - kReservedSharedBytes);
    tile.stages = std::min(height->maxStages,
                           (budget - kRowScaleBytes) / tile.stageBytes());
    if (tile.stages >= (blocks == 2 ? 3 : 2))
      return tile;
  }
  return std::nullopt;
}

// What an SM gives in a cycle. Shared memory: 32 banks of 4 bytes. Second-level
// cache: what Ampere's and Hopper's whitepapers have, 5120 bytes for about 108
// SMs.
static constexpr double kSharedBytesPerCycle = 128;
static constexpr double kL2BytesPerCycle = 47;
/// Warps with which latencies are hidden; fewer lose a part of the time.
static constexpr double kBusyWarps = 8;
/// Cycles of a block beside its steps: start, first loads, last stores.
static constexpr double kBlockCycles = 1500;
/// Of what is overlapped with the slowest unit, the part that shows still.
static constexpr double kOverlapLoss = 0.2;

/// Cycles of one tile on an SM of its own: in each step of 16 k the slowest of
/// multiplying, reading and writing shared memory, and loading; then the
/// epilogue.
static double tileCycles(const CudaChip &chip, const GemmTile &tile,
                         int64_t k) {
  double multipliesPerCycle =
      chip.tensorFlops / 2 / double(chip.sms) / chip.clockHz;
  double area = double(tile.blockM * tile.columns());
  double loaded = double(tile.blockM + tile.columns()) * 32;
  double readByWarps =
      double(tile.warps() * (tile.warpRows + tile.warpColumns)) * 32;
  double multiply = area * 16 / multipliesPerCycle;
  double shared = (loaded + readByWarps) / kSharedBytesPerCycle;
  double load = loaded / kL2BytesPerCycle;
  double slowest = std::max({multiply, shared, load});
  double step = slowest + kOverlapLoss * (multiply + shared + load - slowest);
  // f32 to shared memory and back, 2 bytes out.
  double epilogue = area * (8 / kSharedBytesPerCycle + 2 / kL2BytesPerCycle);
  return step * double(llvm::divideCeil(k, 16)) + epilogue;
}

/// A launch takes whole waves; the blocks of an SM share its units.
double prefill::estimatedGemmCycles(const CudaChip &chip, const GemmTile &tile,
                                    int64_t rows, int64_t columns, int64_t k) {
  int64_t blocks = llvm::divideCeil(rows, tile.blockM) *
                   llvm::divideCeil(columns, tile.blockN);
  int64_t perSM =
      std::max<int64_t>(1, blocksPerSM(chip, tile.threads(),
                                       tile.mainloopBytes(), tile.registers()));
  // What the busiest SM computes; the last wave may leave places empty.
  int64_t mostTiles = llvm::divideCeil(blocks, chip.sms);
  int64_t waves = llvm::divideCeil(mostTiles, perSM);
  double warps = double(std::min(mostTiles, perSM) * tile.warps());
  double busy = std::min(1.0, 0.5 + 0.5 * warps / kBusyWarps);
  double compute = double(mostTiles) * tileCycles(chip, tile, k) / busy;
  // Few rows: the weight comes from memory once, whatever the tile.
  double bytes = 2.0 * double(columns) * double(k);
  double memory = bytes / chip.memoryBytesPerSecond * chip.clockHz;
  return std::max(compute, memory) + kOverlapLoss * std::min(compute, memory) +
         double(waves) * kBlockCycles;
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

std::optional<std::string> prefill::whyNoGemmTile(const CudaChip &chip,
                                                  const GemmColumns &columns,
                                                  int64_t blockM,
                                                  int64_t blockN) {
  auto listed = [](llvm::ArrayRef<int64_t> numbers) {
    return llvm::join(
        llvm::map_range(numbers,
                        [](int64_t number) { return std::to_string(number); }),
        ", ");
  };
  if (!llvm::is_contained(kHeightList, blockM))
    return "block_m is " + std::to_string(blockM) + ", expected one of " +
           listed(kHeightList);
  std::string width = "block_n is " + std::to_string(blockN) + ", expected a ";
  if (blockN < kLaneColumns || blockN > kMaxWidth || blockN % kLaneColumns != 0)
    return width + "multiple of " + std::to_string(kLaneColumns) + " from " +
           std::to_string(kLaneColumns) + " to " + std::to_string(kMaxWidth);
  if (columns.unit && blockN % columns.unit != 0)
    return width + "multiple of head_dim = " + std::to_string(columns.unit);
  if (columns.granularity && blockN % (2 * columns.granularity) != 0)
    return width + "multiple of two interleaved runs of " +
           std::to_string(columns.granularity) + " columns";
  if (!fits(columns, blockN))
    return width + "divisor of the parts of [" + listed(columns.parts) +
           "] columns";
  if (!gemmTile(chip, blockM, blockN))
    return "a tile of " + std::to_string(blockM) + "x" +
           std::to_string(blockN) + " has no room on " + chip.name.str();
  return std::nullopt;
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

/// Those of the heights and widths.
static llvm::SmallVector<GemmTile> tilesOf(const CudaChip &chip,
                                           llvm::ArrayRef<int64_t> heights,
                                           llvm::ArrayRef<int64_t> widths) {
  llvm::SmallVector<GemmTile> tiles;
  for (int64_t blockM : heights)
    for (int64_t width : widths)
      if (std::optional<GemmTile> tile = gemmTile(chip, blockM, width))
        tiles.push_back(*tile);
  return tiles;
}

llvm::SmallVector<GemmTile> prefill::gemmTiles(const CudaChip &chip,
                                               const GemmColumns &columns,
                                               const GemmTileLimits &limits) {
  llvm::SmallVector<int64_t> widths = widthsFor(columns);
  if (limits.blockN)
    widths = {limits.blockN};
  if (limits.widest)
    llvm::erase_if(widths,
                   [&](int64_t width) { return width > limits.widest; });
  if (limits.widest && !widths.empty())
    widths = {*llvm::max_element(widths)};
  llvm::SmallVector<int64_t> heights(llvm::ArrayRef<int64_t>{kHeightList});
  if (limits.blockM)
    heights = {limits.blockM};
  return tilesOf(chip, heights, widths);
}

/// For each tile the sum over the row counts of its time over the least.
static llvm::SmallVector<double> relativeCycles(const CudaChip &chip,
                                                llvm::ArrayRef<GemmTile> tiles,
                                                llvm::ArrayRef<int64_t> rows,
                                                int64_t k,
                                                const GemmColumns &columns) {
  int64_t total =
      std::accumulate(columns.parts.begin(), columns.parts.end(), int64_t(0));
  llvm::SmallVector<double> sums(tiles.size(), 0.0);
  for (int64_t count : rows) {
    auto cycles = llvm::map_to_vector(tiles, [&](const GemmTile &tile) {
      return estimatedGemmCycles(chip, tile, count, total, k);
    });
    for (size_t i = 0; i < tiles.size(); ++i)
      sums[i] += cycles[i] / *llvm::min_element(cycles);
  }
  return sums;
}

std::optional<GemmTile> prefill::selectGemmTile(const CudaChip &chip,
                                                llvm::ArrayRef<int64_t> rows,
                                                int64_t k,
                                                const GemmColumns &columns,
                                                const GemmTileLimits &limits) {
  llvm::SmallVector<GemmTile> tiles = gemmTiles(chip, columns, limits);
  if (tiles.empty())
    return std::nullopt;
  llvm::SmallVector<double> cycles =
      relativeCycles(chip, tiles, rows, k, columns);
  return tiles[size_t(llvm::min_element(cycles) - cycles.begin())];
}

std::optional<GemmTile> prefill::smallestGemmTile(const CudaChip &chip,
                                                  const GemmColumns &columns) {
  llvm::SmallVector<int64_t> widths = widthsFor(columns);
  if (widths.empty())
    return std::nullopt;
  return gemmTile(chip, kHeightList[std::size(kHeightList) - 1],
                  *llvm::min_element(widths));
}

int64_t prefill::selectRowwiseWidth(int64_t columns, int64_t unit) {
  int64_t widest = kWarpThreads * kLaneColumns;
  if (unit)
    return widest / unit * unit;
  return std::min(widest, int64_t(llvm::alignTo(columns, kLaneColumns)));
}
