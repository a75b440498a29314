// Attention kernels compiled as in a module and run on this machine, against
// double loops and against themselves.
#include "AttentionCase.h"
#include "gtest/gtest.h"
#include <numeric>

using namespace prefill_test;
using mlir::prefill::CpuIsa;

namespace {

const std::vector<int64_t> kLengths{1, 2, 63, 64, 65, 127, 128, 129, 513};

struct Target {
  const CpuIsa *isa;
  bool bf16;
};

std::vector<Target> targets() {
  std::vector<Target> result;
  // Variants for 8-bit integers alone have the code of another one here.
  for (const CpuIsa &isa : mlir::prefill::cpuIsas())
    for (bool bf16 : {false, true})
      if (!isa.onlyInt8)
        result.push_back({&isa, bf16});
  return result;
}

class AttentionKernel : public testing::TestWithParam<Target> {
protected:
  void SetUp() override {
    if (!machineRuns(*GetParam().isa))
      GTEST_SKIP() << "this machine does not run "
                   << GetParam().isa->name.str();
  }
  AttentionConfig config() const {
    AttentionConfig config;
    config.isa = GetParam().isa;
    config.dtype = GetParam().bf16 ? Dtype::BF16 : Dtype::F32;
    // As fold-scale leaves it the query carries the scale; here the op does.
    config.scale = 0.18;
    return config;
  }
};

/// What is the same code in every variant runs for the first and the last.
class AttentionShapes : public AttentionKernel {};

TEST_P(AttentionKernel, LengthsAndLayouts) {
  for (const char *layout :
       {"contiguous", "head_major", "paged_nhd", "paged_vnni"}) {
    AttentionConfig c = config();
    c.setLayout(layout);
    AttentionCase attention(c);
    for (int64_t length : kLengths)
      attention.check({{length, length}}, length % 5);
  }
}

// Page sizes below, above and no divisor of block_kv.
TEST_P(AttentionShapes, PageSizes) {
  for (int64_t blockSize : {1, 24, 48, 256}) {
    AttentionConfig c = config();
    c.layout = "paged_nhd";
    c.blockSize = blockSize;
    AttentionCase attention(c);
    for (int64_t length : {1, 23, 24, 25, 129, 300})
      attention.check({{length, length}});
  }
}

TEST_P(AttentionShapes, Groups) {
  for (auto [kvHeads, group] :
       {std::pair<int64_t, int64_t>{3, 1}, {2, 3}, {1, 4}, {1, 7}}) {
    AttentionConfig c = config();
    c.kvHeads = kvHeads;
    c.group = group;
    AttentionCase attention(c);
    for (int64_t length : {1, 2, 33, 129})
      attention.check({{length, length}});
    attention.check({{1, 200}}); // decode
  }
}

void checkHeadDims(AttentionConfig config, int64_t qk, int64_t v) {
  config.headDimQk = qk;
  config.headDimV = v;
  for (const char *layout : {"contiguous", "paged_vnni"}) {
    config.setLayout(layout);
    AttentionCase attention(config);
    for (int64_t length : {1, 65, 129})
      attention.check({{length, length}}, 3);
  }
}

TEST_P(AttentionKernel, HeadDims) {
  for (int64_t dim : {24, 80, 128})
    checkHeadDims(config(), dim, dim);
  checkHeadDims(config(), 31, 17);
}

TEST_P(AttentionShapes, OtherHeadDims) {
  checkHeadDims(config(), 40, 40);
  checkHeadDims(config(), 48, 32);
  // Of whole AMX tiles: more of the query than stay in registers, a last run of
  // two tiles of values, and both widths apart.
  checkHeadDims(config(), 192, 128);
  checkHeadDims(config(), 96, 96);
  checkHeadDims(config(), 64, 80);
}

void checkWindow(AttentionConfig config, int64_t window) {
  config.window = window;
  AttentionCase attention(config);
  for (int64_t length :
       {int64_t(1), window - 1, window, window + 1, int64_t(300)})
    if (length > 0)
      attention.check({{length, length}});
  attention.check({{1, 300}, {50, 300, 2}, {300, 300, 3}});
}

TEST_P(AttentionKernel, Windows) {
  for (int64_t window : {1, 64})
    checkWindow(config(), window);
}

TEST_P(AttentionShapes, OtherWindows) {
  for (int64_t window : {63, 65, 100})
    checkWindow(config(), window);
}

TEST_P(AttentionShapes, BlockShapes) {
  for (auto [blockQ, blockKv] :
       {std::pair<int64_t, int64_t>{1, 32}, {7, 96}, {64, 256}}) {
    AttentionConfig c = config();
    c.blockQ = blockQ;
    c.blockKv = blockKv;
    AttentionCase attention(c);
    for (int64_t length : {1, 31, 32, 33, 257})
      attention.check({{length, length}});
  }
}

TEST_P(AttentionShapes, ScaleOfTheLogits) {
  for (auto [scale, base2] :
       {std::pair<double, bool>{1.0, true}, {0.125, false}}) {
    AttentionConfig c = config();
    c.scale = scale;
    c.base2 = base2;
    AttentionCase attention(c);
    attention.check({{129, 129}});
  }
}

TEST_P(AttentionShapes, Bidirectional) {
  AttentionConfig c = config();
  c.causal = false;
  AttentionCase attention(c);
  for (int64_t length : {1, 63, 64, 65, 129})
    attention.check({{length, length}});
  attention.check({{3, 100}});
}

// More queries than keys: the first rows stand before the first key.
TEST_P(AttentionKernel, RowsWithoutKeysAreZero) {
  for (int64_t window : {0, 50}) {
    AttentionConfig c = config();
    c.window = window;
    AttentionCase attention(c);
    attention.check({{70, 3}});
    attention.check({{40, 39}, {5, 0, 2}, {1, 0, 3}});
  }
}

TEST_P(AttentionKernel, SequencesOfABatch) {
  for (Form form : {Form::Specialized, Form::OneLoop, Form::Plain}) {
    AttentionConfig c = config();
    c.layout = "paged_nhd";
    c.blockSize = 16;
    c.form = form;
    AttentionCase attention(c);
    std::vector<Sequence> batch{{5, 5, 1},    {1, 200, 2}, {64, 64, 3},
                                {0, 17, 4},   {33, 97, 5}, {1, 1, 6},
                                {130, 130, 7}};
    attention.check(batch, 6);
    // Each as it would be alone, bit for bit.
    std::vector<Bits> together = attention.run(batch, 6).bits, alone;
    for (const Sequence &sequence : batch)
      for (Bits bits : attention.run({sequence}).bits)
        alone.push_back(bits);
    EXPECT_EQ(together, alone);
  }
}

TEST_P(AttentionKernel, ChunksGiveTheBitsOfOneCall) {
  for (int64_t window : {0, 50}) {
    AttentionConfig c = config();
    c.window = window;
    AttentionCase attention(c);
    int64_t length = 300;
    std::vector<Bits> whole = attention.run({{length, length}}).bits;
    for (int64_t chunk : {1, 17, 64, 100, 299}) {
      std::vector<Bits> chunks;
      for (int64_t begin = 0; begin < length; begin += chunk) {
        int64_t end = std::min(begin + chunk, length);
        // Slots behind `end` are NaN in this call.
        for (Bits bits : attention.run({{end - begin, end}}, chunk % 3).bits)
          chunks.push_back(bits);
      }
      EXPECT_EQ(whole, chunks) << "chunks of " << chunk;
    }
  }
}

// Pages are read in place, or copied as f32. Every length around their edges
// and the block's, and slots behind the last token hold NaN, keys and values.
TEST_P(AttentionKernel, PagesGiveTheBitsOfTheOtherLayouts) {
  for (int64_t window : {0, 50}) {
    AttentionConfig c = config();
    c.window = window;
    AttentionConfig pages = c;
    pages.setLayout("paged_vnni");
    AttentionCase plain(c), inPlace(pages);
    for (int64_t length :
         {1, 2, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 200}) {
      EXPECT_EQ(inPlace.run({{length, length}}, 3).bits,
                plain.run({{length, length}}).bits)
          << length;
      EXPECT_EQ(inPlace.run({{1, length}}).bits, plain.run({{1, length}}).bits)
          << length;
    }
    std::vector<Sequence> batch{{5, 5, 1}, {1, 200, 2}, {33, 97, 5}};
    EXPECT_EQ(inPlace.run(batch, 6).bits, plain.run(batch, 6).bits);
  }
}

TEST_P(AttentionKernel, ChunksOverPagesGiveTheBitsOfOneCall) {
  AttentionConfig c = config();
  c.setLayout("paged_vnni");
  AttentionCase attention(c);
  int64_t length = 100;
  std::vector<Bits> whole = attention.run({{length, length}}).bits;
  for (int64_t chunk : {1, 17, 33, 99}) {
    std::vector<Bits> chunks;
    for (int64_t begin = 0; begin < length; begin += chunk) {
      int64_t end = std::min(begin + chunk, length);
      for (Bits bits : attention.run({{end - begin, end}}, chunk % 3).bits)
        chunks.push_back(bits);
    }
    EXPECT_EQ(whole, chunks) << "chunks of " << chunk;
  }
}

// Loop bounds and masks are an optimisation: not a bit changes without them.
TEST_P(AttentionKernel, OneLoopGivesTheSameBits) {
  for (int64_t window : {0, 50}) {
    AttentionConfig c = config();
    c.window = window;
    AttentionConfig one = c;
    one.form = Form::OneLoop;
    std::vector<Sequence> batch{{129, 129}, {1, 77, 2}, {60, 190, 3}};
    EXPECT_EQ(AttentionCase(c).run(batch).bits,
              AttentionCase(one).run(batch).bits);
  }
}

// What the last layer's attention stores: some rows, in the order that is asked
// for, twice too, and nothing else.
TEST_P(AttentionKernel, SelectedRowsHaveTheBitsThatTheyHaveAmongAll) {
  std::vector<Sequence> batch{{129, 129}, {1, 77, 2}, {0, 9, 4}, {60, 190, 3}};
  for (auto [form, window] : {std::pair<Form, int64_t>{Form::Specialized, 0},
                              {Form::Specialized, 50},
                              {Form::OneLoop, 0},
                              {Form::Plain, 0}}) {
    AttentionConfig c = config();
    c.form = form;
    c.window = window;
    AttentionConfig selecting = c;
    selecting.selectedRows = true;
    int64_t columns = c.heads() * c.headDimV;
    std::vector<Bits> all = AttentionCase(c).run(batch, 3).bits;
    for (const std::vector<int32_t> &selection :
         {std::vector<int32_t>{128, 129, 189},
          {0},
          {189, 31, 32, 31, 70, 63, 64},
          {130},
          {}}) {
      std::vector<Bits> expected;
      for (int32_t row : selection)
        expected.insert(expected.end(), all.begin() + row * columns,
                        all.begin() + (row + 1) * columns);
      EXPECT_EQ(AttentionCase(selecting).run(batch, 3, selection).bits,
                expected)
          << selecting.describe();
    }
    std::vector<int32_t> every(190);
    std::iota(every.begin(), every.end(), 0);
    EXPECT_EQ(AttentionCase(selecting).run(batch, 3, every).bits, all);
  }
}

TEST_P(AttentionKernel, PlainForm) {
  for (const char *layout :
       {"contiguous", "head_major", "paged_nhd", "paged_vnni"}) {
    AttentionConfig c = config();
    c.form = Form::Plain;
    c.setLayout(layout);
    c.headDimQk = 40;
    c.headDimV = 24;
    c.window = c.layout == "head_major" ? 50 : 0;
    AttentionCase attention(c);
    for (int64_t length : {1, 2, 17, 64, 129})
      attention.check({{length, length}}, 2);
    attention.check({{5, 3}, {20, 100, 2}});
  }
}

TEST_P(AttentionShapes, CompilesFast) {
  AttentionConfig c = config();
  c.kvHeads = 8;
  c.group = 4;
  c.headDimQk = c.headDimV = 128;
  c.blockKv = 256;
  c.window = 4096; // three loops: the largest kernel there is
  AttentionCase attention(c);
  ASSERT_TRUE(attention.ok());
  // 0.4 s alone; the bound leaves room for a busy machine.
  EXPECT_LT(attention.compileSeconds(), 6.0);
  std::cout << "compiled in " << attention.compileSeconds() << " s\n";
}

std::string nameOf(const testing::TestParamInfo<Target> &info) {
  return info.param.isa->name.str() + (info.param.bf16 ? "_bf16" : "_f32");
}

INSTANTIATE_TEST_SUITE_P(Variants, AttentionKernel,
                         testing::ValuesIn(targets()), nameOf);
/// One for each way to multiply: f32, and bf16 by every instruction set.
std::vector<Target> shapeTargets() {
  std::vector<Target> result{targets().front()};
  for (const Target &target : targets())
    if (target.bf16)
      result.push_back(target);
  return result;
}
INSTANTIATE_TEST_SUITE_P(Variants, AttentionShapes,
                         testing::ValuesIn(shapeTargets()), nameOf);

} // namespace
