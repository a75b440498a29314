// Attention kernels of target cuda in the emulator, against double loops and
// against themselves.
#include "CudaAttention.h"
#include "gtest/gtest.h"

using namespace prefill_test;

namespace {

const std::vector<std::string> kLayouts{"contiguous", "head_major",
                                        "paged_nhd"};

/// 32 rows of a tile by 32 keys: two warps. As fold-scale leaves it the query
/// carries the scale; here the op does.
AttentionProblem basic(Dtype dtype = Dtype::BF16) {
  AttentionProblem problem;
  problem.dtype = dtype;
  problem.headDimQk = problem.headDimV = 32;
  problem.kvHeads = 1;
  problem.blockQ = 16;
  problem.blockKv = 32;
  problem.scale = 0.18;
  return problem;
}

class CudaAttentionOf : public testing::TestWithParam<Dtype> {
protected:
  AttentionProblem problem() const { return basic(GetParam()); }
};

// Around the edges of a page (16), of a tile's rows (16) and of a KV block
// (32).
TEST_P(CudaAttentionOf, LengthsAndLayouts) {
  for (const std::string &layout : kLayouts) {
    AttentionProblem p = problem();
    p.setLayout(layout);
    CudaAttention attention(p);
    for (int64_t length : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129})
      attention.check({{length, length}}, length % 5);
  }
}

// No length fails between those where tiles and pages end.
TEST(CudaAttention, EveryLengthUpTo600) {
  AttentionProblem p = basic();
  p.headDimQk = p.headDimV = 16;
  p.group = 1;
  p.blockQ = p.blockKv = 64;
  p.setLayout("paged_nhd");
  CudaAttention attention(p);
  for (int64_t length = 1; length <= 600; ++length)
    attention.check({{length, length}}, length % 3);
}

// Page sizes below, above and no divisor of block_kv.
TEST(CudaAttention, PageSizes) {
  for (int64_t blockSize : {1, 3, 24, 48, 256}) {
    AttentionProblem p = basic();
    p.layout = "paged_nhd";
    p.blockSize = blockSize;
    CudaAttention attention(p);
    for (int64_t length : {1, 23, 24, 25, 100})
      attention.check({{length, length}});
    for (int64_t length : {blockSize - 1, blockSize, blockSize + 1})
      if (length > 0)
        attention.check({{std::min<int64_t>(length, 20), length}});
  }
}

// Large pages behind 4096 keys.
TEST(CudaAttention, LargePagesOfLongSequences) {
  for (int64_t blockSize : {128, 256, 1024}) {
    AttentionProblem p = basic();
    p.layout = "paged_nhd";
    p.blockSize = blockSize;
    p.blockKv = 128;
    CudaAttention(p).check({{17, 4096 + blockSize + 1}, {1, 4097, 2}});
  }
}

// The heads of a group are rows of one tile, also where they do not fill it.
TEST(CudaAttention, Groups) {
  for (auto [kvHeads, group] : {std::pair<int64_t, int64_t>{3, 1},
                                {2, 3},
                                {1, 4},
                                {2, 6},
                                {2, 7},
                                {2, 16},
                                {1, 32}}) {
    AttentionProblem p = basic();
    p.kvHeads = kvHeads;
    p.group = group;
    p.blockQ = std::max<int64_t>(1, 32 / group);
    CudaAttention attention(p);
    for (int64_t length : {1, 2, 33, 65})
      attention.check({{length, length}});
    attention.check({{1, 200}}); // decode
  }
}

TEST_P(CudaAttentionOf, HeadDims) {
  for (auto [qk, v] : {std::pair<int64_t, int64_t>{16, 16},
                       {24, 24},
                       {48, 48},
                       {80, 80},
                       {96, 96},
                       {128, 128},
                       {256, 256},
                       {48, 32},
                       {40, 72}}) {
    AttentionProblem p = problem();
    p.headDimQk = qk;
    p.headDimV = v;
    p.setLayout(qk % 16 ? "paged_nhd" : "contiguous");
    CudaAttention attention(p);
    for (int64_t length : {1, 33, 70})
      attention.check({{length, length}}, 3);
  }
}

// Every number of warps, fragments and stages.
TEST(CudaAttention, TileShapes) {
  for (auto [blockQ, blockKv] : {std::pair<int64_t, int64_t>{1, 16},
                                 {5, 48},
                                 {8, 128},
                                 {32, 64},
                                 {64, 64},
                                 {64, 16},
                                 {128, 32}})
    for (int64_t headDim : {64, 128}) {
      if (headDim == 128 && blockQ * blockKv > 64 * 16)
        continue; // too many registers, and long in the emulator
      AttentionProblem p = basic();
      p.blockQ = blockQ;
      p.blockKv = blockKv;
      p.headDimQk = p.headDimV = headDim;
      CudaAttention attention(p);
      for (int64_t length : {31, 150})
        attention.check({{length, length}}, 1);
    }
}

TEST(CudaAttention, Windows) {
  for (int64_t window : {1, 31, 32, 33, 50}) {
    AttentionProblem p = basic();
    p.window = window;
    CudaAttention attention(p);
    for (int64_t length :
         {int64_t(1), window - 1, window, window + 1, int64_t(130)})
      if (length > 0)
        attention.check({{length, length}});
    attention.check({{1, 130}, {50, 130, 2}});
  }
}

TEST(CudaAttention, ScaleOfTheLogits) {
  for (auto [scale, base2] : {std::pair<double, bool>{1.0, true},
                              {0.125, false},
                              {-0.2, true},
                              {0.0, true}}) {
    AttentionProblem p = basic();
    p.scale = scale;
    p.base2 = base2;
    CudaAttention(p).check({{65, 65}});
  }
}

TEST(CudaAttention, Bidirectional) {
  AttentionProblem p = basic();
  p.causal = false;
  CudaAttention attention(p);
  for (int64_t length : {1, 31, 32, 33, 65})
    attention.check({{length, length}});
  attention.check({{3, 100}});
}

// More queries than keys: the first rows stand before the first key.
TEST_P(CudaAttentionOf, RowsWithoutKeysAreZero) {
  for (Form form : {Form::Specialized, Form::OneLoop, Form::Plain})
    for (int64_t window : {0, 20}) {
      AttentionProblem p = problem();
      p.form = form;
      p.window = window;
      p.setLayout("paged_nhd");
      CudaAttention attention(p);
      attention.check({{40, 3}});
      attention.check({{40, 39}, {5, 0, 2}, {1, 0, 3}, {0, 0, 4}});
    }
}

// The first keys a row sees may be those of its second block: until then its
// maximum is -inf.
TEST(CudaAttention, SequencesOfABatch) {
  for (Form form : {Form::Specialized, Form::OneLoop, Form::Plain}) {
    AttentionProblem p = basic();
    p.setLayout("paged_nhd");
    p.form = form;
    CudaAttention attention(p);
    std::vector<Sequence> batch{{5, 5, 1},  {1, 100, 2}, {32, 32, 3},
                                {0, 17, 4}, {33, 97, 5}, {1, 1, 6},
                                {70, 70, 7}};
    attention.check(batch, 6);
    // Each as it would be alone, bit for bit.
    std::vector<Bits> together = attention.run(batch, 6).result.bits, alone;
    for (const Sequence &sequence : batch)
      for (Bits bits : attention.run({sequence}).result.bits)
        alone.push_back(bits);
    EXPECT_EQ(together, alone);
  }
}

TEST_P(CudaAttentionOf, ChunksGiveTheBitsOfOneCall) {
  for (int64_t window : {0, 50}) {
    AttentionProblem p = problem();
    p.window = window;
    CudaAttention attention(p);
    int64_t length = 150;
    std::vector<Bits> whole = attention.run({{length, length}}).result.bits;
    for (int64_t chunk : {17, 32, 149}) {
      std::vector<Bits> chunks;
      for (int64_t begin = 0; begin < length; begin += chunk) {
        int64_t end = std::min(begin + chunk, length);
        // Slots behind `end` are NaN in this call.
        for (Bits bits :
             attention.run({{end - begin, end}}, chunk % 3).result.bits)
          chunks.push_back(bits);
      }
      EXPECT_EQ(whole, chunks) << "chunks of " << chunk;
    }
  }
}

// Loop bounds and masks are an optimisation: not a bit changes without them.
TEST(CudaAttention, OneLoopGivesTheSameBits) {
  for (int64_t window : {0, 50}) {
    AttentionProblem p = basic();
    p.window = window;
    AttentionProblem one = p;
    one.form = Form::OneLoop;
    std::vector<Sequence> batch{{65, 65}, {1, 77, 2}, {40, 120, 3}};
    EXPECT_EQ(CudaAttention(p).run(batch).result.bits,
              CudaAttention(one).run(batch).result.bits);
  }
}

TEST(CudaAttention, LayoutsGiveTheSameBits) {
  std::vector<Sequence> batch{{65, 65}, {1, 77, 2}, {40, 120, 3}};
  std::vector<Bits> expected = CudaAttention(basic()).run(batch).result.bits;
  for (const std::string &layout : kLayouts) {
    AttentionProblem p = basic();
    p.setLayout(layout);
    EXPECT_EQ(CudaAttention(p).run(batch).result.bits, expected) << layout;
  }
}

// Warps run ahead and behind as far as synchronisation lets them; the emulator
// reports every race. The result is the same, bit for bit.
TEST_P(CudaAttentionOf, OrderOfThreadsDoesNotMatter) {
  AttentionProblem p = problem();
  p.setLayout("paged_nhd");
  p.blockQ = 40; // 80 rows: 3 fragments' worth in 4 warps of 2
  p.headDimQk = p.headDimV = 64;
  CudaAttention attention(p);
  std::vector<Sequence> batch{{90, 90}, {3, 70, 2}};
  std::vector<Bits> expected = attention.run(batch).result.bits;
  for (uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    LaunchOptions options;
    options.seed = seed;
    options.checkBlockRaces = seed == 6;
    EXPECT_EQ(attention.run(batch, 2, options).result.bits, expected) << seed;
  }
}

TEST(CudaAttention, PlainForm) {
  for (const std::string &layout : kLayouts) {
    AttentionProblem p = basic();
    p.form = Form::Plain;
    p.setLayout(layout);
    p.headDimQk = 40;
    p.headDimV = 24;
    p.window = layout == "head_major" ? 20 : 0;
    CudaAttention attention(p);
    for (int64_t length : {1, 2, 17, 65})
      attention.check({{length, length}}, 2);
    attention.check({{5, 3}, {20, 100, 2}}, 0, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaAttentionOf,
                         testing::Values(Dtype::BF16, Dtype::F16),
                         [](const auto &info) { return name(info.param); });

TEST(CudaAttention, Refusals) {
  auto refusal = [](AttentionProblem p) {
    return refusalOfAttention(p, "sm_86");
  };
  AttentionProblem p = basic();
  p.headDimQk = p.headDimV = 20;
  EXPECT_NE(refusal(p).find("has head_dim = 20; target cuda has kernels for "
                            "multiples of 8 up to 256"),
            std::string::npos)
      << refusal(p);
  p = basic(Dtype::F32);
  EXPECT_NE(refusal(p).find("has element type 'f32'; target cuda has kernels "
                            "for f16 and bf16"),
            std::string::npos)
      << refusal(p);
  p = basic();
  p.moreAttributes = ", softcap = 30.0 : f64";
  EXPECT_NE(refusal(p).find("has softcap = 3.000000e+01, which target cuda has "
                            "no kernel for"),
            std::string::npos)
      << refusal(p);
  p = basic();
  p.selectedRows = true;
  for (Form form : {Form::Specialized, Form::Plain}) {
    p.form = form;
    EXPECT_NE(refusal(p).find("has selected_rows, which target cuda has no "
                              "kernel for"),
              std::string::npos)
        << refusal(p);
  }
  p = basic();
  p.headDimQk = p.headDimV = 256;
  p.blockQ = 64, p.blockKv = 32;
  EXPECT_NE(refusal(p).find("bytes of shared memory, expected at most 101376 "
                            "on sm_86"),
            std::string::npos)
      << refusal(p);
  p = basic();
  p.blockQ = 200;
  EXPECT_NE(refusal(p).find("400 rows, expected at most 256"),
            std::string::npos)
      << refusal(p);
  p = basic();
  p.blockKv = 40;
  EXPECT_NE(refusal(p).find("expected keys in multiples of 16"),
            std::string::npos)
      << refusal(p);
}

} // namespace
