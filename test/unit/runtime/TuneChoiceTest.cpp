// What prefill-bench --tune times, and which tiles it writes down, from times
// that a test makes up.
#include "prefill-bench/TuneChoice.h"
#include "prefill-bench/Rows.h"

#include <gtest/gtest.h>

#include <fstream>

using namespace prefill::bench;

namespace {

TunedOp gemm(bool oneWidth) {
  TunedOp op{/*isGemm=*/true, "o_proj", "bf16", 4096, 4096};
  op.oneSecond = oneWidth;
  op.tiles = {{128, 128}, {64, 64}, {64, 128}, {16, 64}};
  return op;
}

struct Timed {
  Tile tile;
  double time;
};

/// A class whose table's tile takes 100 us in each of three rounds.
TunedClass timed(const TunedOp &op, int64_t rows, Tile table,
                 const std::vector<Timed> &candidates) {
  TunedClass made{op, rows, table, {}, {}};
  if (!candidates.empty())
    made.table = {100, 100, 100};
  for (const Timed &candidate : candidates)
    made.candidates.push_back(
        {candidate.tile, {candidate.time, candidate.time, candidate.time}});
  return made;
}

std::string described(const std::vector<TunedEntry> &entries) {
  std::string text;
  for (const TunedEntry &entry : entries)
    text += std::to_string(entry.rows) + ":" + entry.tile.name() + " ";
  return text;
}

std::string tunedNames(const std::string &section,
                       const std::vector<std::string> &shapes = {}) {
  std::string names;
  for (const Row &row : tunedRows(section, shapes))
    names += row.name + " ";
  return names;
}

TEST(TunedRows, BothHeadSizesAndALongKAreTimed) {
  EXPECT_EQ(tunedNames("gemm"),
            "gemm/bf16/512x3072x2048 gemm/bf16/512x2048x2048 "
            "gemm/bf16/512x16384x2048 gemm/bf16/512x2048x8192 "
            "gemm/bf16/512x4096x14336 ");
  EXPECT_EQ(tunedNames("attention"), "attention/bf16/d64/s2048/contiguous "
                                     "attention/bf16/d128/s2048/contiguous ");
  EXPECT_EQ(tunedNames("attention", {"llama-3-8b"}),
            "attention/bf16/d128/s2048/contiguous ");
}

TEST(TuneChoice, TheTableStandsBelowTheThreshold) {
  std::vector<TunedClass> classes = {
      timed(gemm(false), 512, {128, 128}, {{{64, 64}, 99}})};
  EXPECT_EQ(described(chooseTiles(classes, 2)), "");
  EXPECT_EQ(described(chooseTiles(classes, 0.5)), "0:64x64 ");
  EXPECT_EQ(described(chooseTiles({}, 2)), "");
}

TEST(TuneChoice, EachRowCountHasItsOwn) {
  TunedOp op = gemm(false);
  std::vector<TunedClass> classes = {
      timed(op, 16, {16, 64}, {{{64, 64}, 120}, {{64, 128}, 80}}),
      timed(op, 512, {128, 128}, {{{64, 64}, 101}, {{64, 128}, 130}}),
      timed(op, 8192, {128, 128}, {{{64, 64}, 90}, {{64, 128}, 95}})};
  EXPECT_EQ(described(chooseTiles(classes, 2)),
            "16:64x128 512:128x128 0:64x64 ");
  // Neighbours with one tile are one entry; so is what was not measured.
  classes[2] = timed(op, 8192, {128, 128}, {});
  EXPECT_EQ(described(chooseTiles(classes, 2)), "16:64x128 0:128x128 ");
}

TEST(TuneChoice, TheMedianOverTheRoundsDecides) {
  TunedClass measured = timed(gemm(false), 512, {128, 128}, {{{64, 64}, 0}});
  measured.candidates[0].times = {10, 105, 104};
  EXPECT_EQ(described(chooseTiles(std::span(&measured, 1), 2)), "");
  measured.candidates[0].times = {200, 90, 91};
  EXPECT_EQ(described(chooseTiles(std::span(&measured, 1), 2)), "0:64x64 ");
}

TEST(TuneChoice, OneWidthForAllRows) {
  TunedOp op = gemm(true);
  // 64 columns are best for 16 rows, 128 for 512: together 64 are.
  std::vector<TunedClass> classes = {
      timed(op, 16, {16, 128}, {{{16, 64}, 50}, {{64, 64}, 60}}),
      timed(op, 512, {128, 128}, {{{64, 64}, 110}, {{64, 128}, 95}})};
  EXPECT_EQ(described(chooseTiles(classes, 2)), "16:16x64 0:64x64 ");
  classes[1] = timed(op, 512, {128, 128}, {{{64, 64}, 300}, {{64, 128}, 95}});
  EXPECT_EQ(described(chooseTiles(classes, 2)), "16:16x128 0:64x128 ");
  // A width that some row count was not measured with is no choice.
  classes[1] = timed(op, 512, {128, 128}, {{{64, 128}, 100}});
  EXPECT_EQ(described(chooseTiles(classes, 2)), "");
  // Where nothing was measured a tile of that width stands in that fits.
  classes[1] = timed(op, 512, {128, 128}, {});
  EXPECT_EQ(described(chooseTiles(classes, 2)), "16:16x64 0:64x64 ");
}

TEST(TuneChoice, AFileKeepsWhatWasNotMeasured) {
  TunedOp attention{/*isGemm=*/false,
                    "attention",
                    "bf16",
                    0,
                    0,
                    4,
                    128};
  std::string first =
      updatedCudaTuning({}, "a100", "sm_80", {gemm(false), attention},
                        {{gemm(false), 512, {64, 64}},
                         {gemm(false), 0, {128, 128}},
                         {attention, 0, {32, 64}}});
  EXPECT_EQ(nlohmann::ordered_json::parse(first),
            nlohmann::ordered_json::parse(
                R"({"machine": "a100", "cuda": {"sm_80": {"bf16": {
            "gemm": [{"n": 4096, "k": 4096, "rows": 512,
                      "block_m": 64, "block_n": 64},
                     {"n": 4096, "k": 4096, "block_m": 128, "block_n": 128}],
            "attention": [{"group": 4, "head_dim": 128,
                           "block_q": 32, "block_kv": 64}]}}}})"));
  auto earlier = nlohmann::ordered_json::parse(first);
  earlier["cuda"]["sm_90"]["f16"]["gemm"] = nlohmann::ordered_json::array();
  auto second = nlohmann::ordered_json::parse(
      updatedCudaTuning(earlier, "a100", "sm_80", {gemm(false)}, {}));
  EXPECT_EQ(second["cuda"]["sm_80"].dump(),
            R"({"bf16":{"attention":[{"group":4,"head_dim":128,)"
            R"("block_q":32,"block_kv":64}]}})");
  EXPECT_TRUE(second["cuda"].contains("sm_90"));
  EXPECT_EQ(updatedCudaTuning(nlohmann::ordered_json::parse(first), "a100",
                              "sm_80", {gemm(false), attention}, {}),
            "");
}

TEST(TileList, TheBestForAnyRowCountComesFirst) {
  std::string path = testing::TempDir() + "tiles.json";
  std::ofstream(path) << R"({"target": "cuda:sm_80", "rows": [16, 512], "ops": [
    {"section": "gemm", "name": "o_proj", "dtype": "bf16", "n": 64, "k": 32,
     "one_block_n": true,
     "table": [{"block_m": 16, "block_n": 64}, {"block_m": 64, "block_n": 64}],
     "tiles": [
       {"block_m": 32, "block_n": 64, "times": [12, 9]},
       {"block_m": 16, "block_n": 64, "times": [10, 20]},
       {"block_m": 64, "block_n": 64, "times": [30, 8.5]}]}]})";
  Result<TileList> list = readTileList(path);
  ASSERT_TRUE(list) << list.error().message;
  const TunedOp &op = list->ops.at(0);
  EXPECT_EQ(op.className(512), "gemm/bf16/512x64x32");
  EXPECT_TRUE(op.oneSecond);
  EXPECT_EQ(op.table[1], (Tile{64, 64}));
  ASSERT_EQ(op.tiles.size(), 3u);
  // 1, 1 and 9 / 8.5 of the best; of equals the larger first.
  EXPECT_EQ(op.tiles[0], (Tile{64, 64}));
  EXPECT_EQ(op.tiles[1], (Tile{16, 64}));
  EXPECT_EQ(op.tiles[2], (Tile{32, 64}));

  std::ofstream(path) << R"({"rows": [16]})";
  list = readTileList(path);
  ASSERT_FALSE(list);
  EXPECT_NE(list.error().message.find(path), std::string::npos);
  EXPECT_NE(list.error().message.find("expected what prefill-opt"),
            std::string::npos);
}

} // namespace
