//===- ScheduleTable.cpp - row counts with launches of their own ----------===//
#include "prefill/Codegen/CUDA/ScheduleTable.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace mlir;
using namespace mlir::prefill;

// Decode steps of a batch; short chunks and prompts; prompts from where one
// tile of rows fills no chip to where every chip has work for many waves. The
// longer a prompt, the more time it takes and the more its say weighs.
static const CudaSchedule kSchedules[] = {{16, {1, 16}, 2048, 0.25},
                                          {128, {64, 128}, 2048, 0.25},
                                          {512, {256, 512}, 0, 0.5},
                                          {2048, {1024, 2048}, 0, 1.0},
                                          {0, {8192}, 0, 2.0}};

llvm::SmallVector<AttentionCall> CudaSchedule::attentionCalls() const {
  return llvm::map_to_vector(rows, [&](int64_t count) {
    return AttentionCall{count, cached + count};
  });
}

llvm::ArrayRef<CudaSchedule> prefill::cudaSchedules() { return kSchedules; }

const CudaSchedule *prefill::lookupCudaSchedule(int64_t maxRows) {
  const CudaSchedule *found =
      llvm::find_if(cudaSchedules(), [&](const CudaSchedule &entry) {
        return entry.maxRows == maxRows;
      });
  return found == cudaSchedules().end() ? nullptr : found;
}

const CudaSchedule &prefill::scheduleOfCall(int64_t rows) {
  return *llvm::find_if(cudaSchedules(), [&](const CudaSchedule &entry) {
    return entry.maxRows == 0 || rows <= entry.maxRows;
  });
}

std::string prefill::cudaScheduleLimits() {
  return llvm::join(llvm::map_range(cudaSchedules(),
                                    [](const CudaSchedule &entry) {
                                      return std::to_string(entry.maxRows);
                                    }),
                    ", ");
}

/// The `common` number of tiles whose sum over the schedules is the least: of
/// the tiles with that number that is the best in the schedule, the mean over
/// its calls of time over the least that any tile takes. `time`: of a tile and
/// a call of a schedule, by index. `power`: of the number of tokens that the
/// op's time grows with.
template <typename Tile, typename Common, typename Time>
static int64_t selectCommon(llvm::ArrayRef<CudaSchedule> schedules,
                            llvm::ArrayRef<Tile> tiles, int power,
                            Common common, Time time) {
  std::map<int64_t, double> sums;
  for (const CudaSchedule &schedule : schedules) {
    llvm::SmallVector<double> means(tiles.size(), 0.0);
    for (size_t call = 0; call < schedule.rows.size(); ++call) {
      auto times = llvm::map_to_vector(
          tiles, [&](const Tile &tile) { return time(tile, schedule, call); });
      for (size_t i = 0; i < tiles.size(); ++i)
        means[i] +=
            times[i] / *llvm::min_element(times) / double(schedule.rows.size());
    }
    std::map<int64_t, double> best;
    for (auto [tile, mean] : llvm::zip(tiles, means)) {
      auto [known, isNew] = best.try_emplace(common(tile), mean);
      known->second = std::min(known->second, mean);
    }
    for (auto [number, mean] : best)
      sums[number] += std::pow(schedule.weight, power) * mean;
  }
  auto least = std::min_element(
      sums.begin(), sums.end(),
      [](const auto &a, const auto &b) { return a.second < b.second; });
  return least == sums.end() ? 0 : least->first;
}

int64_t prefill::commonGemmWidth(const CudaChip &chip,
                                 llvm::ArrayRef<CudaSchedule> schedules,
                                 int64_t k, const GemmColumns &columns,
                                 const GemmTileLimits &limits) {
  int64_t total =
      std::accumulate(columns.parts.begin(), columns.parts.end(), int64_t(0));
  llvm::SmallVector<GemmTile> tiles = gemmTiles(chip, columns, limits);
  return selectCommon(
      schedules, llvm::ArrayRef<GemmTile>(tiles), /*power=*/1,
      [](const GemmTile &tile) { return tile.blockN; },
      [&](const GemmTile &tile, const CudaSchedule &schedule, size_t call) {
        return estimatedGemmCycles(chip, tile, schedule.rows[call], total, k);
      });
}

int64_t prefill::commonAttentionKeys(const CudaChip &chip,
                                     llvm::ArrayRef<CudaSchedule> schedules,
                                     const AttentionHeads &heads,
                                     int64_t givenBlockQ) {
  llvm::SmallVector<CudaAttentionTile> tiles =
      cudaAttentionTiles(chip, heads, {givenBlockQ, 0});
  return selectCommon(
      schedules, llvm::ArrayRef<CudaAttentionTile>(tiles), /*power=*/2,
      [](const CudaAttentionTile &tile) { return tile.blockKv; },
      [&](const CudaAttentionTile &tile, const CudaSchedule &schedule,
          size_t call) {
        return estimatedAttentionTime(
            chip, heads, tile, cantFail(attentionLayout(chip, heads, tile)),
            schedule.attentionCalls()[call]);
      });
}
