//===- AttentionTileTable.cpp - tile sizes of attention on CUDA -----------===//
#include "prefill/Codegen/CUDA/AttentionTileTable.h"
#include "prefill/Analysis/AttentionSplits.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include <queue>

using namespace mlir;
using namespace mlir::prefill;

static constexpr int64_t kElementBytes = 2;
static constexpr int64_t kMmaRows = 16, kMmaColumns = 8, kMmaDepth = 16;
static constexpr int64_t kMaxWarps = 8;
static constexpr int64_t kMaxStages = 3;
// Beside what is counted below: addresses of copies and fragments, the masks'
// limits, loop counters. Where the sum is below 255 ptxas spilled nothing in
// test/unit/cuda/CudaAttentionAssemblyTest.cpp, sm_80 to sm_90. With a window
// there are three KV loops, and ptxas keeps more across them: with two
// fragments of head_dim 128 it spilled 8 to 56 bytes on sm_89 and sm_90.
static constexpr int64_t kFixedRegisters = 56;
static constexpr int64_t kWindowRegisters = 16;
// The ends of a split's keys: two fragments of head_dim 128 by 32 keys, 240 as
// a whole, spilled 72 or 80 bytes on sm_89 or sm_90. What a window is allowed
// covers them.
static constexpr int64_t kSplitRegisters = 16;

int64_t AttentionHeads::depth() const {
  return llvm::alignTo(headDimQk, kMmaDepth);
}
int64_t AttentionHeads::valueColumns() const {
  return llvm::alignTo(headDimV, 2 * kMmaColumns);
}

int64_t AttentionLayout::sharedBytes() const {
  return std::max(
      {stages * stageBytes(), queryOffset() + queryBytes, outBytes});
}

/// Registers of a thread: sums, scores (as probabilities they take half of the
/// place), query fragments, one step's key or value fragments and the rows'
/// state.
static int64_t estimateRegisters(const AttentionHeads &heads, int64_t blockKv,
                                 int64_t fragments, bool queryInRegisters) {
  int64_t sums = llvm::divideCeil(heads.headDimV, kMmaColumns) * 4;
  int64_t scores = blockKv / kMmaColumns * 4;
  int64_t query = queryInRegisters ? heads.depth() / kMmaDepth * 4 : 4;
  return fragments * (sums + scores + query + 4) + 8 + kFixedRegisters +
         (heads.slidingWindow ? kWindowRegisters : 0);
}

llvm::Expected<AttentionLayout>
prefill::attentionLayout(const CudaChip &chip, const AttentionHeads &heads,
                         CudaAttentionTile tile) {
  auto fail = [&](const llvm::Twine &reason) {
    return llvm::createStringError(
        llvm::formatv("attention tile of {0} query rows by {1} keys, {2} query "
                      "heads a KV head, head_dim {3}/{4}: {5}",
                      tile.blockQ, tile.blockKv, heads.group, heads.headDimQk,
                      heads.headDimV, reason)
            .str());
  };
  for (int64_t dim : {heads.headDimQk, heads.headDimV})
    if (dim < 8 || dim > kMaxAttentionHeadDim || dim % 8 != 0)
      return fail("target cuda has kernels for head sizes that are multiples "
                  "of 8 from 8 to 256");
  if (tile.blockQ < 1)
    return fail("expected at least one query row");
  if (tile.blockKv < kMmaDepth || tile.blockKv % kMmaDepth != 0)
    return fail("expected keys in multiples of 16");
  int64_t rowFragments = llvm::divideCeil(tile.blockQ * heads.group, kMmaRows);
  if (rowFragments > 2 * kMaxWarps)
    return fail(llvm::formatv("{0} rows, expected at most {1}",
                              tile.blockQ * heads.group,
                              2 * kMaxWarps * kMmaRows)
                    .str());
  // Two fragments a warp halve what a product reads of keys and values from
  // shared memory; fewer than four warps leave a scheduler without one.
  AttentionLayout best{};
  std::string reason;
  for (int64_t fragments : {2, 1}) {
    if (fragments == 2 && rowFragments <= 4)
      continue;
    int64_t warps =
        llvm::PowerOf2Ceil(llvm::divideCeil(rowFragments, fragments));
    if (warps > kMaxWarps)
      continue;
    for (bool queryInRegisters : {true, false}) {
      AttentionLayout layout{};
      layout.warps = warps;
      layout.fragments = fragments;
      layout.queryInRegisters = queryInRegisters;
      layout.queryBytes = layout.rows() * heads.depth() * kElementBytes;
      layout.keyBytes = tile.blockKv * heads.depth() * kElementBytes;
      layout.valueBytes = tile.blockKv * heads.valueColumns() * kElementBytes;
      layout.outBytes = layout.rows() * heads.headDimV * kElementBytes;
      layout.registers =
          estimateRegisters(heads, tile.blockKv, fragments, queryInRegisters);
      if (layout.registers > kMaxThreadRegisters) {
        reason = llvm::formatv("a thread needs about {0} registers, expected "
                               "at most {1}",
                               layout.registers, kMaxThreadRegisters);
        continue;
      }
      // As many stages as cost no block of the SM.
      for (int64_t stages = 2; stages <= kMaxStages; ++stages) {
        layout.stages = stages;
        int64_t bytes = layout.sharedBytes();
        if (bytes > chip.sharedPerBlock) {
          if (stages == 2)
            reason = llvm::formatv("{0} bytes of shared memory, expected at "
                                   "most {1} on {2}",
                                   bytes, chip.sharedPerBlock, chip.name);
          break;
        }
        layout.blocksPerSM =
            blocksPerSM(chip, layout.threads(), bytes, layout.registers);
        if (layout.blocksPerSM > best.blocksPerSM ||
            (layout.blocksPerSM == best.blocksPerSM &&
             layout.fragments == best.fragments &&
             layout.queryInRegisters == best.queryInRegisters))
          best = layout;
      }
      if (best.blocksPerSM)
        return best;
    }
  }
  return fail(reason);
}

AttentionWaves prefill::attentionWaves(const CudaChip &chip,
                                       const AttentionHeads &heads,
                                       CudaAttentionTile tile,
                                       const AttentionLayout &layout,
                                       AttentionCall call) {
  AttentionShape shape{heads.causal, heads.slidingWindow, tile.blockKv};
  AttentionWaves result;
  result.slots = chip.sms * layout.blocksPerSM;
  // When each slot is free, in KV blocks.
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<int64_t>>
      free;
  for (int64_t slot = 0; slot < result.slots; ++slot)
    free.push(0);
  int64_t visited = 0, end = 0;
  int64_t tiles = llvm::divideCeil(call.queries, tile.blockQ);
  for (int64_t i = tiles; i-- > 0;) {
    int64_t begin = i * tile.blockQ;
    KVBlockRange<int64_t> range =
        attentionBlockRange(shape, {call.queries, call.keys}, begin,
                            std::min(begin + tile.blockQ, call.queries));
    for (int64_t head = 0; head < heads.numKvHeads; ++head) {
      int64_t blocks = range.end - range.begin;
      visited += blocks;
      int64_t done = free.top() + blocks;
      free.pop();
      free.push(done);
      end = std::max(end, done);
    }
  }
  result.workgroups = tiles * heads.numKvHeads;
  result.waves = double(result.workgroups) / double(result.slots);
  result.efficiency =
      end ? double(visited) / (double(result.slots) * double(end)) : 0.0;
  return result;
}

/// Cycles that an SM takes for a KV block, per element of the scores.
static double cyclesPerScore(const CudaChip &chip, const AttentionHeads &heads,
                             CudaAttentionTile tile,
                             const AttentionLayout &layout) {
  // Public figures: 16 exponentials and 128 bytes of shared memory a cycle. Of
  // the second-level cache, 5 TB/s or more (A100, H100, RTX 4090), an SM has 16
  // to 47 bytes a cycle: tiles of few rows read keys and values too often.
  constexpr double kExponentials = 16.0, kSharedBytes = 128.0, kL2Bytes = 24.0;
  // Waiting for the barrier and the first fragments of a block; other blocks of
  // the SM fill it.
  constexpr double kStepCycles = 200.0;
  // The units of an SM work at the same time as far as there are warps to use
  // them: of what is not the slowest unit's time, this part is not hidden with
  // eight warps or more. No measurement: to be replaced by
  // `prefill-bench --tune` on a device.
  constexpr double kExposed = 0.4;
  constexpr double kBusyWarps = 8.0;
  double scores = double(layout.rows()) * double(tile.blockKv);
  double fmasPerCycle =
      chip.tensorFlops / (2.0 * double(chip.sms) * chip.clockHz);
  double matrix =
      scores * double(heads.depth() + heads.headDimV) / fmasPerCycle;
  double perWarp = double(layout.stageBytes());
  if (!layout.queryInRegisters)
    perWarp += double(layout.queryBytes) / double(layout.warps);
  double shared = perWarp * double(layout.warps) / kSharedBytes;
  double softmax = scores / kExponentials;
  double copies = double(layout.stageBytes()) / kL2Bytes;
  double warps = double(layout.warps * layout.blocksPerSM);
  double exposed = 1.0 - (1.0 - kExposed) * std::min(1.0, warps / kBusyWarps);
  double slowest = std::max({matrix, shared, softmax, copies});
  double sum = matrix + shared + softmax + copies;
  double cycles = slowest + exposed * (sum - slowest) +
                  kStepCycles / double(layout.blocksPerSM);
  // Rows that no query fills are computed all the same.
  double used = double(tile.blockQ * heads.group) / double(layout.rows());
  return cycles / (scores * used);
}

/// The table's sizes, or what is given instead of them.
static llvm::SmallVector<CudaAttentionTile>
tilesOf(const AttentionHeads &heads, CudaAttentionTile given = {0, 0}) {
  llvm::SmallVector<int64_t> blockQs, blockKvs = {16, 32, 64, 128};
  for (int64_t rows : {16, 32, 64, 128, 256})
    if (rows >= heads.group)
      blockQs.push_back(rows / heads.group);
  if (given.blockQ)
    blockQs = {given.blockQ};
  if (given.blockKv)
    blockKvs = {given.blockKv};
  llvm::SmallVector<CudaAttentionTile> tiles;
  for (int64_t blockQ : blockQs)
    for (int64_t blockKv : blockKvs)
      tiles.push_back({blockQ, blockKv});
  return tiles;
}

llvm::SmallVector<CudaAttentionTile>
prefill::cudaAttentionTiles(const CudaChip &chip, const AttentionHeads &heads,
                            CudaAttentionTile given) {
  llvm::SmallVector<CudaAttentionTile> tiles = tilesOf(heads, given);
  llvm::erase_if(tiles, [&](CudaAttentionTile tile) {
    llvm::Expected<AttentionLayout> layout = attentionLayout(chip, heads, tile);
    if (!layout)
      llvm::consumeError(layout.takeError());
    return !layout;
  });
  return tiles;
}

double prefill::estimatedAttentionTime(const CudaChip &chip,
                                       const AttentionHeads &heads,
                                       CudaAttentionTile tile,
                                       const AttentionLayout &layout,
                                       AttentionCall call) {
  // Blocks that share an SM: of a short call there are fewer than have room.
  AttentionLayout resident = layout;
  int64_t workgroups =
      llvm::divideCeil(call.queries, tile.blockQ) * heads.numKvHeads;
  resident.blocksPerSM = std::min(
      layout.blocksPerSM, int64_t(llvm::divideCeil(workgroups, chip.sms)));
  AttentionWaves waves = attentionWaves(chip, heads, tile, resident, call);
  double time = cyclesPerScore(chip, heads, tile, resident) /
                std::max(waves.efficiency, 1e-9);
  // Scores of masked blocks are work that smaller tiles avoid.
  AttentionShape shape{heads.causal, heads.slidingWindow, tile.blockKv};
  VisitedTiles visited =
      countVisitedTiles(shape, {call.queries, call.keys}, tile.blockQ);
  return time * double(visited.total()) * double(tile.blockQ * tile.blockKv);
}

namespace {

/// The tiles that fit a chip and their estimated times for some calls.
struct TimedTiles {
  TimedTiles(const CudaChip &chip, const AttentionHeads &heads,
             CudaAttentionTile given) {
    for (CudaAttentionTile tile : tilesOf(heads, given)) {
      llvm::Expected<AttentionLayout> layout =
          attentionLayout(chip, heads, tile);
      if (layout) {
        tiles.push_back(tile);
        layouts.push_back(*layout);
      } else {
        reason = llvm::toString(layout.takeError());
      }
    }
  }

  /// For each tile the sum over the calls of its time over the least.
  llvm::SmallVector<double> relativeTimes(const CudaChip &chip,
                                          const AttentionHeads &heads,
                                          llvm::ArrayRef<AttentionCall> calls) {
    llvm::SmallVector<double> sums(tiles.size(), 0.0);
    for (const AttentionCall &call : calls) {
      llvm::SmallVector<double> times;
      for (auto [tile, layout] : llvm::zip(tiles, layouts))
        times.push_back(
            estimatedAttentionTime(chip, heads, tile, layout, call));
      for (auto [sum, time] : llvm::zip(sums, times))
        sum += time / *llvm::min_element(times);
    }
    return sums;
  }

  llvm::SmallVector<CudaAttentionTile> tiles;
  llvm::SmallVector<AttentionLayout> layouts;
  std::string reason; ///< why the last one that does not fit does not
};

} // namespace

llvm::Expected<CudaAttentionTile>
prefill::cudaAttentionTile(const CudaChip &chip, const AttentionHeads &heads,
                           llvm::ArrayRef<AttentionCall> calls, bool plain,
                           CudaAttentionTile given) {
  if (heads.group > 2 * kMaxWarps * kMmaRows)
    return llvm::createStringError(
        llvm::formatv("attention has {0} query heads a KV head; target cuda "
                      "has tiles of at most {1}",
                      heads.group, 2 * kMaxWarps * kMmaRows)
            .str());
  TimedTiles timed(chip, heads, given);
  if (timed.tiles.empty())
    return llvm::createStringError(timed.reason);
  if (plain)
    return timed.tiles.front();
  llvm::SmallVector<double> times = timed.relativeTimes(chip, heads, calls);
  return timed.tiles[size_t(llvm::min_element(times) - times.begin())];
}

/// A split is as a KV head of its own with a share of the keys.
static double estimatedSplitTime(const CudaChip &chip, AttentionHeads heads,
                                 CudaAttentionTile tile,
                                 const AttentionLayout &layout,
                                 AttentionCall call, int64_t splits) {
  heads.numKvHeads *= splits;
  if (splits > 1)
    call.keys =
        llvm::alignTo(llvm::divideCeil(call.keys, splits), kSplitAlignment);
  return double(splits) *
         estimatedAttentionTime(chip, heads, tile, layout, call);
}

llvm::Expected<SplitAttention>
prefill::splitAttention(const CudaChip &chip, const AttentionHeads &heads,
                        CudaAttentionTile tile,
                        llvm::ArrayRef<AttentionCall> calls, bool given) {
  llvm::Expected<AttentionLayout> whole = attentionLayout(chip, heads, tile);
  if (!whole)
    return whole.takeError();
  llvm::SmallVector<SplitAttention> candidates{{tile, 1}};
  llvm::SmallVector<AttentionLayout> layouts{*whole};
  llvm::SmallVector<CudaAttentionTile> tiles{tile};
  if (!given)
    tiles = cudaAttentionTiles(chip, heads);
  for (CudaAttentionTile candidate : tiles) {
    if (kSplitAlignment % candidate.blockKv != 0)
      continue;
    AttentionLayout layout = cantFail(attentionLayout(chip, heads, candidate));
    int64_t more = heads.slidingWindow ? 0 : kSplitRegisters;
    if (layout.registers + more > kMaxThreadRegisters)
      continue;
    for (int64_t splits = 2; splits <= kMaxAttentionSplits; splits *= 2) {
      candidates.push_back({candidate, splits});
      layouts.push_back(layout);
    }
  }
  llvm::SmallVector<double> sums(candidates.size(), 0.0);
  for (const AttentionCall &call : calls) {
    llvm::SmallVector<double> times;
    for (auto [candidate, layout] : llvm::zip(candidates, layouts))
      times.push_back(estimatedSplitTime(chip, heads, candidate.tile, layout,
                                         call, candidate.splits));
    for (auto [sum, time] : llvm::zip(sums, times))
      sum += time / *llvm::min_element(times);
  }
  return candidates[llvm::min_element(sums) - sums.begin()];
}
