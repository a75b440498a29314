//===- TileTableTest.cpp - chips, tiles of gemms and their order ----------===//
#include "../../../tools/prefill-bench/TensorCores.h"
#include "prefill/Codegen/CUDA/GemmTileTable.h"
#include "prefill/Codegen/CUDA/ScheduleTable.h"
#include "prefill/Codegen/CUDA/TileScheduler.h"
#include "gtest/gtest.h"

using namespace mlir::prefill;

namespace {

const CudaChip &chip(const char *name) { return *lookupCudaChip(name); }

TEST(Chips, AreKnownByName) {
  EXPECT_EQ(cudaChipNames(), "sm_80, sm_86, sm_89, sm_90");
  EXPECT_EQ(lookupCudaChip("sm_75"), nullptr);
  EXPECT_EQ(chip("sm_80").sms, 108);
}

// As the occupancy calculator counts: the least of what registers, shared
// memory, threads and blocks allow.
TEST(Chips, Occupancy) {
  EXPECT_EQ(blocksPerSM(chip("sm_80"), 128, 0, 32), 16);     // threads
  EXPECT_EQ(blocksPerSM(chip("sm_80"), 32, 0, 32), 32);      // blocks
  EXPECT_EQ(blocksPerSM(chip("sm_80"), 128, 0, 208), 2);     // registers
  EXPECT_EQ(blocksPerSM(chip("sm_80"), 128, 65536, 64), 2);  // shared memory
  EXPECT_EQ(blocksPerSM(chip("sm_86"), 128, 101377, 64), 0); // of a block
  EXPECT_EQ(blocksPerSM(chip("sm_86"), 128, 48 * 1024, 64), 2);
  EXPECT_EQ(blocksPerSM(chip("sm_86"), 128, 50 * 1024, 64), 1); // reserved KiB
  EXPECT_DOUBLE_EQ(occupancy(chip("sm_80"), 128, 65536, 200), 256.0 / 2048);
}

// The rates that prefill-bench takes for the peak are those that tiles are
// chosen by.
TEST(Chips, TensorCoresAreThoseOfTheBenchmark) {
  ASSERT_EQ(std::size(prefill::bench::tensorCores), cudaChips().size());
  for (const auto &[number, flopsPerClock] : prefill::bench::tensorCores) {
    const CudaChip &known = chip(("sm_" + std::to_string(number)).c_str());
    double rate = known.tensorFlops / double(known.sms) / known.clockHz;
    EXPECT_NEAR(rate / flopsPerClock, 1, 0.01) << number;
  }
}

// Whatever the epilogue asks for: the tile fits the chip, its warps cover it,
// and a thread has registers for its sums.
TEST(GemmTiles, FitEveryChip) {
  for (const CudaChip &chip : cudaChips())
    for (int64_t height : gemmBlockHeights())
      for (int64_t width = 8; width <= 256; width += 8) {
        std::optional<GemmTile> tile = gemmTile(chip, height, width);
        ASSERT_TRUE(tile) << chip.name.str() << " " << height << "x" << width;
        EXPECT_GE(tile->stages, 2);
        EXPECT_LE(tile->mainloopBytes(), chip.sharedPerBlock);
        EXPECT_EQ(tile->warpRows * tile->warpsM, height);
        EXPECT_GE(tile->columns(), width);
        EXPECT_LT(tile->columns(), width + 16 * tile->warpsN) << width;
        EXPECT_LE(tile->warpRows * tile->warpColumns / 32, 128);
        EXPECT_GE(blocksPerSM(chip, tile->threads(), tile->mainloopBytes(),
                              tile->registers()),
                  1);
      }
}

TEST(GemmTiles, RefuseWhatIsNotInTheTable) {
  EXPECT_FALSE(gemmTile(chip("sm_80"), 80, 128));
  EXPECT_FALSE(gemmTile(chip("sm_80"), 128, 264));
  EXPECT_FALSE(gemmTile(chip("sm_80"), 128, 12));
}

TEST(GemmTiles, CutNeitherHeadsNorPartsNorRuns) {
  for (const CudaChip &chip : cudaChips())
    for (int64_t rows : {1, 17, 128, 2048}) {
      // Llama-3-8B, Qwen2.5-0.5B, heads of 24, 40 and 80.
      struct Case {
        std::vector<int64_t> parts;
        int64_t unit, granularity;
      };
      for (const Case &c :
           {Case{{4096, 1024, 1024}, 128, 0}, Case{{896, 128, 128}, 64, 0},
            Case{{72, 24, 24}, 24, 0}, Case{{120, 40, 40}, 40, 0},
            Case{{160, 80, 80}, 80, 0}, Case{{28672}, 0, 32},
            Case{{192, 64}, 0, 0}, Case{{72, 40}, 0, 0}, Case{{131}, 0, 0}}) {
        std::optional<GemmTile> tile = selectGemmTile(
            chip, {rows, 2048}, 4096, {c.parts, c.unit, c.granularity});
        ASSERT_TRUE(tile) << c.parts[0];
        if (c.parts.size() > 1)
          for (int64_t part : c.parts)
            EXPECT_EQ(part % tile->blockN, 0) << part;
        if (c.unit)
          EXPECT_EQ(tile->blockN % c.unit, 0);
        if (c.granularity)
          EXPECT_EQ(tile->blockN % (2 * c.granularity), 0);
      }
    }
  // No width holds such a head.
  const int64_t wide[] = {264, 264};
  EXPECT_FALSE(selectGemmTile(chip("sm_80"), {128}, 64, {wide, 264, 0}));
}

// S14: a few rows take low tiles, so that more than a few SMs work; many rows
// take those that load the least.
TEST(GemmTiles, FollowTheRowCount) {
  const CudaChip &a100 = chip("sm_80");
  const int64_t parts[] = {4096};
  GemmColumns square{parts, 0, 0};
  EXPECT_EQ(selectGemmTile(a100, {1}, 4096, square)->blockM, 16);
  EXPECT_EQ(selectGemmTile(a100, {8192}, 4096, square)->blockM, 128);
  // A tile that is chosen is not worse than any other of its width.
  for (int64_t rows : {1, 64, 300, 512, 2048}) {
    GemmTile best = *selectGemmTile(a100, {rows}, 4096, square);
    double least = estimatedGemmCycles(a100, best, rows, 4096, 4096);
    for (int64_t height : gemmBlockHeights())
      for (int64_t width : {32, 64, 96, 128, 192, 256})
        EXPECT_LE(least,
                  estimatedGemmCycles(a100, *gemmTile(a100, height, width),
                                      rows, 4096, 4096));
  }
}

// What bits depend on is the same in every schedule, and heights follow the
// schedule's row counts.
TEST(Schedules, ShareWidthsAndKeysButNoHeights) {
  AttentionHeads heads;
  heads.headDimQk = heads.headDimV = 128;
  heads.group = 4;
  heads.numKvHeads = 8;
  const int64_t parts[] = {4096};
  GemmColumns square{parts, 0, 0};
  int64_t last = 0;
  for (const CudaSchedule &schedule : cudaSchedules()) {
    EXPECT_TRUE(schedule.maxRows > last || schedule.maxRows == 0);
    for (int64_t count : schedule.rows) {
      EXPECT_GT(count, last);
      EXPECT_TRUE(schedule.maxRows == 0 || count <= schedule.maxRows);
    }
    last = schedule.maxRows;
    EXPECT_EQ(lookupCudaSchedule(schedule.maxRows), &schedule);
  }
  EXPECT_EQ(last, 0);
  EXPECT_EQ(lookupCudaSchedule(17), nullptr);
  for (const CudaChip &chip : cudaChips()) {
    int64_t width = commonGemmWidth(chip, cudaSchedules(), 4096, square, {});
    EXPECT_GT(width, 0);
    int64_t keys = commonAttentionKeys(chip, cudaSchedules(), heads, 0);
    int64_t previousHeight = 0, previousQueries = 0;
    for (const CudaSchedule &schedule : cudaSchedules()) {
      std::optional<GemmTile> tile =
          selectGemmTile(chip, schedule.rows, 4096, square, {0, width, 0});
      ASSERT_TRUE(tile);
      EXPECT_GE(tile->blockM, previousHeight);
      previousHeight = tile->blockM;
      llvm::Expected<CudaAttentionTile> attention = cudaAttentionTile(
          chip, heads, schedule.attentionCalls(), false, {0, keys});
      ASSERT_TRUE(bool(attention));
      EXPECT_EQ(attention->blockKv, keys);
      EXPECT_GE(attention->blockQ, previousQueries);
      previousQueries = attention->blockQ;
    }
    EXPECT_EQ(previousHeight, 128);
  }
  // Somebody's demands hold.
  EXPECT_EQ(commonGemmWidth(cudaChips().front(), cudaSchedules(), 4096, square,
                            {0, 0, 50}),
            48);
  EXPECT_EQ(commonGemmWidth(cudaChips().front(), cudaSchedules(), 4096,
                            {parts, 264, 0}, {}),
            0);
}

TEST(GemmTiles, AWaveIsNearlySquare) {
  const CudaChip &a100 = chip("sm_80");
  GemmTile tile = *gemmTile(a100, 128, 128);
  int64_t wave = a100.sms * blocksPerSM(a100, tile.threads(),
                                        tile.mainloopBytes(), tile.registers());
  int64_t rows = selectGroupRows(a100, tile);
  EXPECT_EQ(rows % tile.blockM, 0);
  auto load = [&](int64_t chunks) {
    return chunks * tile.blockM + (wave + chunks - 1) / chunks * tile.blockN;
  };
  for (int64_t chunks = 1; chunks <= wave; ++chunks)
    EXPECT_LE(load(rows / tile.blockM), load(chunks)) << chunks;
  EXPECT_LT(load(rows / tile.blockM), load(wave) / 3);
}

TEST(RowwiseTiles, HoldWholeHeads) {
  EXPECT_EQ(selectRowwiseWidth(4096, 0), 256);
  EXPECT_EQ(selectRowwiseWidth(72, 0), 72);
  EXPECT_EQ(selectRowwiseWidth(131, 0), 136);
  EXPECT_EQ(selectRowwiseWidth(72, 24), 240);
  EXPECT_EQ(selectRowwiseWidth(1024, 80), 240);
  EXPECT_EQ(selectRowwiseWidth(1024, 264), 0);
}

} // namespace
