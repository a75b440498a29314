// Brute force: the blocks of a split are compared with what counting keys one
// by one says, by the rule of the specification.
#include "prefill/Analysis/AttentionSplits.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"
#include <algorithm>

using namespace mlir::prefill;

namespace {

constexpr IntegerArithmetic kNumbers;

// docs/spec.md: split s holds keys [s * c, (s + 1) * c).
int64_t splitOf(int64_t key, int64_t seqlenKv, int64_t numSplits) {
  int64_t share = (seqlenKv + numSplits - 1) / numSplits;
  while (share % 128)
    ++share;
  return key / share;
}

bool sees(const AttentionShape &shape, int64_t seqlenQ, int64_t seqlenKv,
          int64_t row, int64_t key) {
  int64_t position = seqlenKv - seqlenQ + row;
  return !(shape.causal && key > position) &&
         !(shape.slidingWindow && key <= position - shape.slidingWindow);
}

TEST(AttentionSplits, EveryKeyBelongsToOneSplit) {
  for (int64_t numSplits : {2, 3, 4, 16})
    for (int64_t seqlenKv : {0, 1, 127, 128, 129, 256, 257, 1000, 2048, 5000}) {
      SCOPED_TRACE(testing::Message()
                   << numSplits << " splits of " << seqlenKv << " keys");
      std::vector<int64_t> count(seqlenKv, 0);
      for (int64_t split = 0; split < numSplits; ++split) {
        KeyRange<int64_t> keys =
            splitKeys(kNumbers, numSplits, seqlenKv, split);
        EXPECT_EQ(keys.begin % kSplitAlignment, 0);
        EXPECT_EQ(keys.end % kSplitAlignment, 0);
        for (int64_t key = keys.begin; key < std::min(keys.end, seqlenKv);
             ++key) {
          ++count[key];
          EXPECT_EQ(splitOf(key, seqlenKv, numSplits), split);
        }
      }
      EXPECT_TRUE(llvm::all_of(count, [](int64_t n) { return n == 1; }));
    }
}

// A split visits exactly the blocks of its own keys of which a row sees one,
// and those without a mask are exactly the ones of which all rows see all.
TEST(AttentionSplits, BlocksMatchCounting) {
  for (bool causal : {true, false})
    for (int64_t window : {0, 1, 100, 200})
      for (int64_t blockKv : {32, 128})
        for (int64_t numSplits : {2, 3, 16})
          for (auto [seqlenQ, seqlenKv] : {std::pair<int64_t, int64_t>{1, 1},
                                           {1, 127},
                                           {1, 128},
                                           {1, 129},
                                           {1, 700},
                                           {5, 256},
                                           {130, 385},
                                           {300, 300},
                                           {40, 3}}) {
            if (window && !causal)
              continue;
            AttentionShape shape{causal, window, blockKv};
            for (int64_t begin = 0; begin < seqlenQ; begin += 16) {
              int64_t end = std::min<int64_t>(begin + 16, seqlenQ);
              KVBlockRange<int64_t> whole =
                  attentionBlockRange(shape, {seqlenQ, seqlenKv}, begin, end);
              for (int64_t split = 0; split < numSplits; ++split) {
                SCOPED_TRACE(testing::Message()
                             << "causal " << causal << " window " << window
                             << " block_kv " << blockKv << " split " << split
                             << " of " << numSplits << ", rows [" << begin
                             << ", " << end << ") of " << seqlenQ << ", "
                             << seqlenKv << " keys");
                KeyRange<int64_t> keys =
                    splitKeys(kNumbers, numSplits, seqlenKv, split);
                KVBlockRange<int64_t> range =
                    splitBlockRange(kNumbers, whole, keys, blockKv);
                ASSERT_LE(range.begin, range.fullBegin);
                ASSERT_LE(range.fullBegin, range.fullEnd);
                ASSERT_LE(range.fullEnd, range.end);
                int64_t blocks = (seqlenKv + blockKv - 1) / blockKv;
                for (int64_t block = 0; block <= blocks; ++block) {
                  int64_t seen = 0;
                  for (int64_t row = begin; row < end; ++row)
                    for (int64_t key = block * blockKv;
                         key < std::min((block + 1) * blockKv, seqlenKv); ++key)
                      seen += sees(shape, seqlenQ, seqlenKv, row, key) &&
                              splitOf(key, seqlenKv, numSplits) == split;
                  bool visited = block >= range.begin && block < range.end;
                  ASSERT_EQ(visited, seen > 0) << "block " << block;
                  bool full = block >= range.fullBegin && block < range.fullEnd;
                  ASSERT_EQ(full, seen == blockKv * (end - begin))
                      << "block " << block;
                }
              }
            }
          }
}

} // namespace
