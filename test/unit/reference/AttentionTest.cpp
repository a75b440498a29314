// Attention against numbers made by hand. The trick of most tests: queries of
// zero make all scores equal, so that a row is the mean of the values it sees.
#include "ReferenceTesting.h"
#include <cmath>

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using ::testing::HasSubstr;

namespace {

struct AttentionTest : ReferenceTest {
  KVCacheType cacheType(int64_t heads, int64_t dimQk, int64_t dimV,
                        int64_t blockSize) {
    return KVCacheType::get(&context, KVLayout::Contiguous, heads, dimQk, dimV,
                            Float32Type::get(&context), blockSize);
  }

  /// One head of width 1; key and value of token t are `keys[t]`, `values[t]`.
  KVCache filled(ArrayRef<double> keys, ArrayRef<double> values,
                 int64_t slots = 64) {
    int64_t count = keys.size();
    KVCache cache(cacheType(1, 1, 1, slots), 1);
    Batch batch = makeSequenceBatch(0, std::vector<int32_t>(count));
    return get(kvAppend(Tensor({count, 1}, std::vector<double>(keys)),
                        Tensor({count, 1}, std::vector<double>(values)), cache,
                        batch));
  }

  /// The outputs of `queries` rows of zero query over `length` tokens, the
  /// value of token t being 2^t: the sum behind a mean says which tokens were
  /// seen.
  Tensor means(int64_t length, int64_t queries,
               const AttentionParameters &parameters) {
    std::vector<double> values;
    for (int64_t t = 0; t < length; ++t)
      values.push_back(std::ldexp(1.0, t));
    KVCache cache = filled(std::vector<double>(length), values);
    Batch batch =
        makeSequenceBatch(length - queries, std::vector<int32_t>(queries));
    return get(attention(Tensor({queries, 1}), cache, batch, parameters));
  }

  /// Mean of 2^first .. 2^last.
  static double mean(int64_t first, int64_t last) {
    return (std::ldexp(1.0, last + 1) - std::ldexp(1.0, first)) /
           (last - first + 1);
  }
};

TEST_F(AttentionTest, SoftmaxByHand) {
  KVCache cache = filled({0, std::log(3.0)}, {10, 20});
  Batch batch = makeSequenceBatch(1, {0});
  Tensor q({1, 1}, {1});
  // weights 1/4 and 3/4
  expectValues(get(attention(q, cache, batch, {})), {17.5});
  // scale 2: weights 1/10 and 9/10
  AttentionParameters scaled;
  scaled.scale = 2;
  expectValues(get(attention(q, cache, batch, scaled)), {19});
}

TEST_F(AttentionTest, CausalRowsSeeUpToThemselves) {
  expectValues(means(4, 4, {}),
               {mean(0, 0), mean(0, 1), mean(0, 2), mean(0, 3)});
}

TEST_F(AttentionTest, NotCausalRowsSeeAll) {
  AttentionParameters parameters;
  parameters.causal = false;
  expectValues(means(3, 2, parameters), {mean(0, 2), mean(0, 2)});
}

// known-failures.md 1: q_len < kv_len stands at the bottom right.
TEST_F(AttentionTest, ChunkIsAlignedBottomRight) {
  expectValues(means(6, 2, {}), {mean(0, 4), mean(0, 5)});
  expectValues(means(6, 1, {}), {mean(0, 5)});
}

// known-failures.md 1 to 3: rows that see no key are exactly 0, not mean(V).
TEST_F(AttentionTest, MoreQueriesThanKeysLeavesEmptyRowsZero) {
  KVCache cache = filled({5, 5}, {1, 2});
  Batch batch = makeSequenceBatch(0, {0, 0, 0, 0});
  batch.kvLens = {2};
  Tensor result = get(attention(Tensor({4, 1}), cache, batch, {}));
  expectValues(result, {0, 0, 1, 1.5}, 0);
}

TEST_F(AttentionTest, NoKeysAtAll) {
  KVCache cache = filled({}, {});
  Batch batch = makeSequenceBatch(0, {0, 0});
  batch.kvLens = {0};
  expectValues(get(attention(Tensor({2, 1}), cache, batch, {})), {0, 0}, 0);
}

// known-failures.md 4 and 5: exactly W keys, the row's own included.
TEST_F(AttentionTest, WindowIsExact) {
  constexpr int64_t kWindow = 5;
  AttentionParameters parameters;
  parameters.slidingWindow = kWindow;
  for (int64_t length : {kWindow - 1, kWindow, kWindow + 1, 3 * kWindow}) {
    Tensor result = means(length, length, parameters);
    for (int64_t row = 0; row < length; ++row)
      EXPECT_NEAR(result.values[row],
                  mean(std::max<int64_t>(0, row - kWindow + 1), row), 1e-9)
          << "row " << row << " of " << length;
  }
}

// known-failures.md 7: cached and new keys are under the same window.
TEST_F(AttentionTest, WindowCutsThePastToo) {
  AttentionParameters parameters;
  parameters.slidingWindow = 3;
  expectValues(means(8, 2, parameters), {mean(4, 6), mean(5, 7)});
  parameters.slidingWindow = 1;
  expectValues(means(8, 2, parameters), {mean(6, 6), mean(7, 7)});
}

TEST_F(AttentionTest, ChunkedIsOneShot) {
  AttentionParameters parameters;
  parameters.slidingWindow = 4;
  Tensor whole = means(12, 12, parameters);
  for (int64_t tail = 1; tail < 12; ++tail) {
    Tensor part = means(12, tail, parameters);
    expectValues(part, ArrayRef(whole.values).take_back(tail), 0);
  }
}

// known-failures.md 20 and 22: head h reads KV head h / group, any group.
TEST_F(AttentionTest, HeadsShareKVHeadsInRuns) {
  constexpr int64_t kGroup = 3, kHeads = 2;
  KVCache cache(cacheType(kHeads, 1, 1, 8), 1);
  Batch batch = makeSequenceBatch(0, {0});
  cache = get(
      kvAppend(Tensor({1, kHeads}), Tensor({1, kHeads}, {7, 9}), cache, batch));
  expectValues(get(attention(Tensor({1, kGroup * kHeads}), cache, batch, {})),
               {7, 7, 7, 9, 9, 9}, 0);
}

// known-failures.md 24: keys and values of different width.
TEST_F(AttentionTest, ValueWidthDiffersFromKeyWidth) {
  KVCache cache(cacheType(1, 2, 3, 8), 1);
  Batch batch = makeSequenceBatch(0, {0, 0});
  cache = get(kvAppend(Tensor({2, 2}, {0, 0, 0, std::log(3.0)}),
                       Tensor({2, 3}, {0, 0, 0, 4, 8, 12}), cache, batch));
  Tensor q({2, 2}, {9, 1, 9, 1});
  expectValues(get(attention(q, cache, batch, {})), {0, 0, 0, 3, 6, 9});
}

// known-failures.md 9: cap * tanh(s / cap), before the mask.
TEST_F(AttentionTest, Softcap) {
  KVCache cache = filled({0, 8, 1e9}, {10, 20, 1e9});
  Batch batch = makeSequenceBatch(1, {0});
  batch.blockTable = {{0}};
  AttentionParameters parameters;
  parameters.softcap = 2;
  double weight = std::exp(2 * std::tanh(4.0));
  expectValues(get(attention(Tensor({1, 1}, {1}), cache, batch, parameters)),
               {(10 + weight * 20) / (1 + weight)});
}

TEST_F(AttentionTest, Base2TakesLogitsInLog2) {
  KVCache cache = filled({0, 2}, {10, 20});
  Batch batch = makeSequenceBatch(1, {0});
  AttentionParameters base2;
  base2.base2 = true;
  // weights 1/5 and 4/5
  expectValues(get(attention(Tensor({1, 1}, {1}), cache, batch, base2)), {18});
}

TEST_F(AttentionTest, Base2WithSoftcapIsTheSameFunction) {
  KVCache cache = filled({0.5, 3, -1}, {10, 20, -5});
  Batch batch = makeSequenceBatch(2, {0});
  AttentionParameters natural, base2;
  natural.softcap = base2.softcap = 1.5;
  base2.base2 = true;
  Tensor expected =
      get(attention(Tensor({1, 1}, {0.8}), cache, batch, natural));
  Tensor actual =
      get(attention(Tensor({1, 1}, {0.8 * M_LOG2E}), cache, batch, base2));
  expectValues(actual, expected.values);
}

TEST_F(AttentionTest, LargeScoresStayFinite) {
  KVCache cache = filled({1e4, -1e4}, {3, 5});
  Batch batch = makeSequenceBatch(1, {0});
  expectValues(get(attention(Tensor({1, 1}, {1}), cache, batch, {})), {3});
}

TEST_F(AttentionTest, SequencesDoNotSeeEachOther) {
  KVCache cache(cacheType(1, 1, 1, /*blockSize=*/2), 4);
  BatchBuilder builder(2, 4, 2);
  Batch batch = get(builder.next({{{0, 0, 0}, {0, 0}}, /*paddedRows=*/1}));
  cache = get(kvAppend(Tensor({6, 1}), Tensor({6, 1}, {1, 2, 3, 10, 20, NAN}),
                       cache, batch));
  expectValues(get(attention(Tensor({6, 1}), cache, batch, {})),
               {1, 1.5, 2, 10, 15, 0});
}

TEST_F(AttentionTest, ReadingWhatWasNeverWrittenIsAnError) {
  KVCache cache = filled({1, 2}, {1, 2}, /*slots=*/4);
  Batch batch = makeSequenceBatch(2, {0});
  EXPECT_THAT(
      messageOf(attention(Tensor({1, 1}), cache, batch, {})),
      HasSubstr("key 2 of sequence 0 is read at slot 2, which was never "
                "written"));
  batch.kvLens = {5};
  AttentionParameters window;
  window.slidingWindow = 1;
  EXPECT_THAT(
      messageOf(attention(Tensor({1, 1}), cache, batch, window)),
      HasSubstr("key 4 of sequence 0 is read at slot -1, which does not "
                "exist"));
}

TEST_F(AttentionTest, UnwrittenKeysBeforeTheWindowDoNotMatter) {
  KVCache cache(cacheType(1, 1, 1, 8), 1);
  Batch batch = makeSequenceBatch(5, {0});
  cache = get(kvAppend(Tensor({1, 1}), Tensor({1, 1}, {4}), cache, batch));
  AttentionParameters window;
  window.slidingWindow = 1;
  expectValues(get(attention(Tensor({1, 1}), cache, batch, window)), {4}, 0);
}

TEST_F(AttentionTest, AppendWritesSlotsAndNothingElse) {
  KVCache empty(cacheType(2, 1, 2, 4), 2);
  Batch batch = makeSequenceBatch(0, {0, 0, 0});
  batch.slotMapping = {6, -1, 1};
  KVCache cache = get(kvAppend(
      Tensor({3, 2}, {1, 2, 3, 4, 5, 6}),
      Tensor({3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), empty, batch));
  EXPECT_EQ(cache.key(6, 1)[0], 2);
  EXPECT_EQ(cache.value(6, 1)[0], 3);
  EXPECT_EQ(cache.key(1, 0)[0], 5);
  EXPECT_EQ(cache.value(1, 1)[1], 12);
  for (int64_t slot : {0, 2, 3, 4, 5, 7})
    EXPECT_FALSE(cache.written[slot]) << slot;
  EXPECT_TRUE(cache.written[6] && cache.written[1]);
  // The operand is as it was: caches are values.
  EXPECT_FALSE(empty.written[6]);
  EXPECT_TRUE(std::isnan(empty.key(6, 1)[0]));
}

TEST_F(AttentionTest, AppendRefusesBadSlots) {
  KVCache cache(cacheType(1, 1, 1, 4), 1);
  Batch batch = makeSequenceBatch(0, {0, 0});
  batch.slotMapping = {0, 4};
  EXPECT_THAT(messageOf(kvAppend(Tensor({2, 1}), Tensor({2, 1}), cache, batch)),
              HasSubstr("slot 4 of row 1 is outside the cache of 4 slots"));
  batch.slotMapping = {3, 3};
  EXPECT_THAT(messageOf(kvAppend(Tensor({2, 1}), Tensor({2, 1}), cache, batch)),
              HasSubstr("slot 3 of row 1 is written by an earlier row too"));
}

// docs/spec.md: splits hold ceil(kv_len / S) keys rounded up to 128. 300 keys
// in two splits: 256 and 44; in four: 128, 128, 44 and none.
TEST_F(AttentionTest, SplitsHoldWholeRunsOf128Keys) {
  constexpr int64_t keys = 300;
  std::vector<double> values;
  for (int64_t t = 0; t < keys; ++t)
    values.push_back(double(t));
  KVCache cache = filled(std::vector<double>(keys), values, keys);
  Batch batch = makeSequenceBatch(keys - 1, {0});
  Tensor query({1, 1});
  auto meanOf = [](int64_t begin, int64_t end) {
    return 0.5 * double(begin + end - 1);
  };
  double none = -std::numeric_limits<double>::infinity();
  SplitAttention two = get(splitAttention(query, cache, batch, {}, 2));
  expectValues(two.outputs, {meanOf(0, 256), meanOf(256, 300)});
  expectValues(two.lse, {std::log(256.0), std::log(44.0)});
  SplitAttention four = get(splitAttention(query, cache, batch, {}, 4));
  expectValues(four.outputs,
               {meanOf(0, 128), meanOf(128, 256), meanOf(256, 300), 0});
  for (int64_t split = 0; split < 3; ++split)
    EXPECT_NEAR(four.lse.row(0)[split], std::log(split < 2 ? 128.0 : 44.0),
                1e-14);
  EXPECT_EQ(four.lse.row(0)[3], none);
  // Base 2 scores of 3: the log-sum-exp is natural all the same.
  AttentionParameters base2;
  base2.base2 = true;
  KVCache threes = filled(std::vector<double>(keys, 3.0), values, keys);
  SplitAttention scaled =
      get(splitAttention(Tensor({1, 1}, {1}), threes, batch, base2, 2));
  expectValues(scaled.lse, {std::log(8 * 256.0), std::log(8 * 44.0)});
}

TEST_F(AttentionTest, CombinedSplitsAreOneSoftmax) {
  // Two splits of two heads of one channel: weights 1 : 3 and 1 : 0.
  double none = -std::numeric_limits<double>::infinity();
  Tensor lse({1, 4}, {0, 5, std::log(3.0), none});
  double nan = std::numeric_limits<double>::quiet_NaN();
  Tensor partials({1, 4}, {10, 7, 20, nan});
  expectValues(combineSplits(partials, lse, 2), {17.5, 7});
  // Nobody saw a key; what the splits hold does not matter.
  expectValues(combineSplits(Tensor({1, 4}, {nan, nan, nan, nan}),
                             Tensor({1, 4}, {none, none, none, none}), 2),
               {0, 0});
  // Large log-sum-exps do not overflow.
  expectValues(
      combineSplits(Tensor({1, 2}, {2, 4}), Tensor({1, 2}, {2e3, 2e3}), 1),
      {3});
}

TEST_F(AttentionTest, SplitsCombineToAttention) {
  constexpr int64_t keys = 400, queries = 3;
  KVCache cache(cacheType(2, 4, 4, keys), 1);
  auto numbers = [](int64_t rows, int64_t columns, double seed) {
    std::vector<double> values;
    for (int64_t i = 0; i < rows * columns; ++i)
      values.push_back(std::sin(seed + 1.7 * double(i)));
    return Tensor({rows, columns}, values);
  };
  Batch all = makeSequenceBatch(0, std::vector<int32_t>(keys));
  cache = get(kvAppend(numbers(keys, 8, 1), numbers(keys, 8, 2), cache, all));
  Batch batch =
      makeSequenceBatch(keys - queries, std::vector<int32_t>(queries));
  Tensor query = numbers(queries, 16, 3);
  for (int64_t window : {0, 10, 130}) {
    AttentionParameters parameters;
    if (window)
      parameters.slidingWindow = window;
    Tensor whole = get(attention(query, cache, batch, parameters));
    for (int64_t splits : {2, 3, 16}) {
      SplitAttention parts =
          get(splitAttention(query, cache, batch, parameters, splits));
      Tensor combined = combineSplits(parts.outputs, parts.lse, 16);
      for (int64_t row = 0; row < queries; ++row)
        for (int64_t c = 0; c < 16; ++c)
          EXPECT_NEAR(combined.row(row)[c], whole.row(row)[c], 1e-13);
    }
  }
}

} // namespace
