// Brute force: the ranges are compared with what counting keys one by one says.
#include "prefill/Analysis/AttentionBlockRange.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "prefill/Analysis/IndexArithmetic.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

// The rule of the specification for one row and one key, on its own.
bool sees(const AttentionShape &shape, int64_t seqlenQ, int64_t seqlenKv,
          int64_t row, int64_t key) {
  int64_t position = seqlenKv - seqlenQ + row;
  if (key < 0 || key >= seqlenKv)
    return false;
  if (shape.causal && key > position)
    return false;
  if (shape.slidingWindow && key <= position - shape.slidingWindow)
    return false;
  return true;
}

std::string describe(const AttentionShape &shape, int64_t seqlenQ,
                     int64_t seqlenKv, int64_t begin, int64_t end) {
  return "causal " + std::to_string(shape.causal) + " window " +
         std::to_string(shape.slidingWindow) + " block_kv " +
         std::to_string(shape.blockKv) + " seqlen_q " +
         std::to_string(seqlenQ) + " seqlen_kv " + std::to_string(seqlenKv) +
         " rows [" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

void checkTile(const AttentionShape &shape, int64_t seqlenQ, int64_t seqlenKv,
               int64_t rowBegin, int64_t rowEnd) {
  KVBlockRange<int64_t> range =
      attentionBlockRange(shape, {seqlenQ, seqlenKv}, rowBegin, rowEnd);
  SCOPED_TRACE(describe(shape, seqlenQ, seqlenKv, rowBegin, rowEnd));
  ASSERT_LE(0, range.begin);
  ASSERT_LE(range.begin, range.fullBegin);
  ASSERT_LE(range.fullBegin, range.fullEnd);
  ASSERT_LE(range.fullEnd, range.end);
  int64_t blocks = (seqlenKv + shape.blockKv - 1) / shape.blockKv;
  ASSERT_LE(range.end, blocks);
  for (int64_t block = 0; block < blocks; ++block) {
    int64_t seen = 0;
    for (int64_t row = rowBegin; row < rowEnd; ++row)
      for (int64_t key = block * shape.blockKv;
           key < (block + 1) * shape.blockKv; ++key)
        seen += sees(shape, seqlenQ, seqlenKv, row, key);
    // Exactly the blocks with a visible key are visited, and exactly those
    // without an invisible one run without a mask.
    bool visited = block >= range.begin && block < range.end;
    ASSERT_EQ(visited, seen > 0) << "block " << block;
    bool full = block >= range.fullBegin && block < range.fullEnd;
    ASSERT_EQ(full, seen == shape.blockKv * (rowEnd - rowBegin))
        << "block " << block;
  }
}

TEST(AttentionBlockRange, MatchesCountingForEverySmallCase) {
  for (bool causal : {true, false})
    for (int64_t blockKv : {1, 2, 3, 4})
      for (int64_t window = 0; window <= 9; ++window)
        for (int64_t seqlenQ = 1; seqlenQ <= 10; ++seqlenQ)
          for (int64_t seqlenKv = 0; seqlenKv <= 13; ++seqlenKv)
            for (int64_t begin = 0; begin < seqlenQ; ++begin)
              for (int64_t end = begin + 1; end <= seqlenQ; ++end)
                checkTile({causal, window, blockKv}, seqlenQ, seqlenKv, begin,
                          end);
}

TEST(AttentionBlockRange, WindowsAroundTheBlockSize) {
  for (int64_t window : {63, 64, 65, 127, 128, 129})
    for (int64_t seqlenQ : {1, 63, 64, 65, 200})
      for (int64_t past : {0, 1, 64, 100})
        for (int64_t row = 0; row < seqlenQ; row += 64)
          checkTile({true, window, 64}, seqlenQ, seqlenQ + past, row,
                    std::min<int64_t>(row + 64, seqlenQ));
}

TEST(AttentionBlockRange, RowsBeforeTheFirstKeySeeNothing) {
  // Five queries, two keys: rows 0 to 2 stand at -3 to -1.
  for (int64_t row = 0; row < 3; ++row) {
    auto keys = visibleKeys(IntegerArithmetic(), {true, 0, 4}, {5, 2}, row);
    EXPECT_GE(keys.begin, keys.end);
  }
  KVBlockRange<int64_t> range = attentionBlockRange({true, 0, 4}, {5, 2}, 0, 3);
  EXPECT_EQ(range.begin, range.end);
}

TEST(AttentionBlockRange, EmptyTileOfASurplusWorkgroupVisitsNothing) {
  for (int64_t window : {0, 1, 100}) {
    KVBlockRange<int64_t> range =
        attentionBlockRange({true, window, 64}, {0, 0}, 0, 0);
    EXPECT_EQ(range.begin, range.end);
  }
}

TEST(AttentionBlockRange, VisitedTilesGrowWithTheWindowNotTheLength) {
  // 32768 tokens, window 1024, tiles of 64 by 256.
  AttentionShape shape{true, 1024, 256};
  VisitedTiles tiles = countVisitedTiles(shape, {32768, 32768}, 64);
  // A tile of 64 rows sees at most 64 + 1024 - 1 keys: 6 blocks at the worst
  // alignment.
  EXPECT_LE(tiles.total(), 32768 / 64 * 6);
  // Without the window it is half the square.
  VisitedTiles causal = countVisitedTiles({true, 0, 256}, {32768, 32768}, 64);
  EXPECT_GT(causal.total(), 512 * 128 / 2);
  // Every query tile has exactly one diagonal block (64 divides 256).
  EXPECT_EQ(causal.edge, 512);
  VisitedTiles twice = countVisitedTiles(shape, {65536, 65536}, 64);
  // Only the first window is cheaper than the rest.
  EXPECT_LE(twice.total(), 2 * tiles.total() + 1024 / 64 * 6);
}

TEST(AttentionBlockRange, IRFoldsToTheSameNumbers) {
  MLIRContext context;
  context.loadDialect<arith::ArithDialect>();
  Location loc = UnknownLoc::get(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  IndexArithmetic arith{builder, loc};
  auto number = [](Value value) {
    IntegerAttr attr;
    EXPECT_TRUE(matchPattern(value, m_Constant(&attr)));
    return attr ? attr.getInt() : -1;
  };
  for (bool causal : {true, false})
    for (int64_t window : {0, 7, 64})
      for (int64_t seqlenQ : {1, 5, 70})
        for (int64_t seqlenKv : {0, 3, 70, 200}) {
          AttentionShape shape{causal, window, 16};
          KVBlockRange<int64_t> expected =
              attentionBlockRange(shape, {seqlenQ, seqlenKv}, 0, seqlenQ);
          KVBlockRange<Value> range = attentionBlockRange(
              arith, shape, {arith.constant(seqlenQ), arith.constant(seqlenKv)},
              arith.constant(0), arith.constant(seqlenQ));
          EXPECT_EQ(number(range.begin), expected.begin);
          EXPECT_EQ(number(range.fullBegin), expected.fullBegin);
          EXPECT_EQ(number(range.fullEnd), expected.fullEnd);
          EXPECT_EQ(number(range.end), expected.end);
        }
}

} // namespace
