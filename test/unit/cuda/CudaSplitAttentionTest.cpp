// Attention over splits of the keys on target cuda in the emulator: each
// split's log-sum-exp, and the outputs as they combine, against double loops.
#include "CudaAttention.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

/// 32 rows of a tile by 64 keys, four splits.
AttentionProblem basic(Dtype dtype = Dtype::BF16) {
  AttentionProblem problem;
  problem.dtype = dtype;
  problem.headDimQk = problem.headDimV = 32;
  problem.kvHeads = 1;
  problem.blockQ = 16;
  problem.blockKv = 64;
  problem.scale = 0.18;
  problem.numSplits = 4;
  return problem;
}

class CudaSplitAttentionOf : public testing::TestWithParam<Dtype> {
protected:
  AttentionProblem problem() const { return basic(GetParam()); }
};

// Around the keys at which splits begin: one, two and all of them have keys.
TEST_P(CudaSplitAttentionOf, LengthsAndLayouts) {
  for (const char *layout : {"contiguous", "head_major", "paged_nhd"}) {
    AttentionProblem p = problem();
    p.setLayout(layout);
    CudaAttention attention(p);
    for (int64_t length : {1, 127, 128, 129, 257, 512, 513})
      attention.check({{1, length}}, length % 4);
    attention.check({{130, 600}}, 2, 1);
  }
}

// Short and long, decode and chunks, side by side.
TEST_P(CudaSplitAttentionOf, SequencesOfABatch) {
  AttentionProblem p = problem();
  p.setLayout("paged_nhd");
  p.numSplits = 16;
  p.group = 4;
  p.blockQ = 4;
  CudaAttention attention(p);
  attention.check({{1, 5000},
                   {5, 5, 2},
                   {1, 1, 3},
                   {0, 17, 4},
                   {7, 300, 5},
                   {1, 2049, 6},
                   {3, 128, 7}},
                  3);
}

TEST(CudaSplitAttention, Groups) {
  for (auto [kvHeads, group] :
       {std::pair<int64_t, int64_t>{3, 1}, {2, 4}, {2, 7}}) {
    AttentionProblem p = basic();
    p.kvHeads = kvHeads;
    p.group = group;
    p.blockQ = std::max<int64_t>(1, 16 / group);
    CudaAttention attention(p);
    attention.check({{1, 700}});
    attention.check({{3, 200, 2}, {2, 2, 3}}, 1);
  }
}

// 16 bytes of f32 are half of eight columns: widths of an odd number of eights.
TEST(CudaSplitAttention, HeadDims) {
  for (auto [qk, v] :
       {std::pair<int64_t, int64_t>{64, 64}, {128, 128}, {40, 72}, {24, 8}}) {
    AttentionProblem p = basic();
    p.headDimQk = qk;
    p.headDimV = v;
    p.blockKv = 32;
    p.numSplits = 2;
    CudaAttention(p).check({{2, 300}}, 1);
  }
}

// A window that begins in the middle of a split, and ends in another.
TEST(CudaSplitAttention, Windows) {
  for (int64_t window : {1, 100, 128, 200}) {
    AttentionProblem p = basic();
    p.window = window;
    CudaAttention attention(p);
    attention.check({{1, 600}, {40, 500, 2}, {1, 3, 3}});
  }
}

TEST(CudaSplitAttention, Bidirectional) {
  AttentionProblem p = basic();
  p.causal = false;
  CudaAttention(p).check({{3, 500}, {2, 100, 2}});
}

TEST(CudaSplitAttention, ScaleOfTheLogits) {
  for (auto [scale, base2] :
       {std::pair<double, bool>{1.0, true}, {0.125, false}, {-0.2, true}}) {
    AttentionProblem p = basic();
    p.scale = scale;
    p.base2 = base2;
    CudaAttention(p).check({{2, 300}});
  }
}

// Rows before the first key, whole tiles of them, and sequences without keys.
TEST_P(CudaSplitAttentionOf, RowsWithoutKeysAreZero) {
  for (Form form : {Form::Specialized, Form::OneLoop}) {
    AttentionProblem p = problem();
    p.form = form;
    p.setLayout("paged_nhd");
    CudaAttention attention(p);
    attention.check({{40, 3}});
    attention.check({{40, 39}, {5, 0, 2}, {1, 0, 3}, {0, 0, 4}});
  }
}

// Loop bounds are an optimisation here as well.
TEST(CudaSplitAttention, OneLoopGivesTheSameLogSumExps) {
  for (int64_t window : {0, 150}) {
    AttentionProblem p = basic();
    p.window = window;
    AttentionProblem one = p;
    one.form = Form::OneLoop;
    std::vector<Sequence> batch{{65, 300}, {1, 577, 2}};
    AttentionResult cut = CudaAttention(p).run(batch).result;
    AttentionResult whole = CudaAttention(one).run(batch).result;
    EXPECT_EQ(cut.lse, whole.lse);
    EXPECT_EQ(cut.values, whole.values);
  }
}

TEST_P(CudaSplitAttentionOf, OrderOfThreadsDoesNotMatter) {
  AttentionProblem p = problem();
  p.setLayout("paged_nhd");
  p.blockQ = 40; // 80 rows in 4 warps of 2 fragments
  p.headDimQk = p.headDimV = 64;
  CudaAttention attention(p);
  std::vector<Sequence> batch{{90, 300}, {3, 70, 2}};
  std::vector<Bits> expected = attention.run(batch).result.bits;
  for (uint64_t seed : {1, 2, 3, 4}) {
    LaunchOptions options;
    options.seed = seed;
    options.checkBlockRaces = seed == 4;
    EXPECT_EQ(attention.run(batch, 2, options).result.bits, expected) << seed;
  }
}

// f32 rows in whole sectors, 16 bytes a thread.
TEST(CudaSplitAttention, StoresWholeSectors) {
  AttentionProblem p = basic();
  p.kvHeads = 2;
  p.group = 4;
  p.headDimQk = p.headDimV = 64;
  p.blockQ = 4;
  p.blockSize = 2048;
  CudaAttention attention(p);
  LaunchCounters counters = attention.run({{4, 2048}}).counters;
  int64_t bytes = 0, sectors = 0, requests = 0, lse = 0;
  for (const auto &site : counters.sites) {
    if (site.name == "attention.store") {
      bytes += site.counters.globalBytes;
      sectors += site.counters.sectors;
      requests += site.counters.requests;
    } else if (site.name == "attention.store_lse") {
      lse += site.counters.globalBytes;
    }
  }
  int64_t heads = 4 * p.numSplits * p.heads();
  EXPECT_EQ(bytes, heads * p.headDimV * 4);
  EXPECT_EQ(sectors * 32, bytes);
  EXPECT_EQ(requests * 32 * 16, bytes);
  EXPECT_EQ(lse, heads * 4);
}

// A split without a key does not even load the query.
TEST(CudaSplitAttention, EmptySplitsLoadNothing) {
  AttentionProblem p = basic();
  CudaAttention attention(p);
  for (auto [length, splits] :
       {std::pair<int64_t, int64_t>{100, 1}, {200, 2}, {500, 4}}) {
    uint64_t bytes = 0;
    for (const auto &site : attention.run({{1, length}}).counters.sites)
      if (site.name == "attention.load_q")
        bytes += site.counters.globalBytes;
    EXPECT_EQ(bytes, uint64_t(splits * p.heads() * p.headDimQk * 2)) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaSplitAttentionOf,
                         testing::Values(Dtype::BF16, Dtype::F16),
                         [](const auto &info) { return name(info.param); });

TEST(CudaSplitAttention, Refusals) {
  AttentionProblem p = basic();
  p.blockKv = 48;
  EXPECT_NE(refusalOfAttention(p, "sm_80")
                .find("has num_splits = 4 and block_kv = 48, expected a "
                      "divisor of 128"),
            std::string::npos);
  p = basic();
  p.form = Form::Plain;
  EXPECT_NE(refusalOfAttention(p, "sm_80")
                .find("has num_splits = 4, which the unfused form does not "
                      "have"),
            std::string::npos);
}

} // namespace
