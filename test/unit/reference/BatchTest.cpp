#include "ReferenceTesting.h"
#include <set>

using namespace mlir::prefill::reference;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

TEST(BatchTest, OneSequence) {
  Batch batch = makeSequenceBatch(5, {7, 8, 9}, /*allRows=*/false);
  EXPECT_THAT(batch.positions, ElementsAre(5, 6, 7));
  EXPECT_THAT(batch.slotMapping, ElementsAre(5, 6, 7));
  EXPECT_THAT(batch.cuSeqlens, ElementsAre(0, 3));
  EXPECT_THAT(batch.kvLens, ElementsAre(8));
  EXPECT_THAT(batch.logitsIndices, ElementsAre(2));
  EXPECT_EQ(llvm::toString(batch.verify()), "");
}

TEST(BatchTest, BuilderLaysSequencesOutInSeparateSlots) {
  BatchBuilder builder(/*numSequences=*/2, /*maxLength=*/5, /*blockSize=*/2);
  EXPECT_EQ(builder.numBlocks(), 6);
  Batch first = get(builder.next({{{1, 2, 3}, {4}}, /*paddedRows=*/1}));
  Batch second = get(builder.next({{{5}, {6, 7}}, 0, /*allRows=*/false}));
  EXPECT_THAT(first.positions, ElementsAre(0, 1, 2, 0, 0));
  EXPECT_EQ(first.slotMapping.back(), -1);
  EXPECT_THAT(first.cuSeqlens, ElementsAre(0, 3, 4));
  EXPECT_THAT(first.logitsIndices, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(second.positions, ElementsAre(3, 1, 2));
  EXPECT_THAT(second.kvLens, ElementsAre(4, 3));
  EXPECT_THAT(second.logitsIndices, ElementsAre(0, 2));
  std::set<int64_t> slots(first.slotMapping.begin(), first.slotMapping.end());
  slots.insert(second.slotMapping.begin(), second.slotMapping.end());
  EXPECT_EQ(slots.size(), 8u); // seven tokens, and -1
  // Slot mapping and block table say the same.
  EXPECT_EQ(first.slotMapping[2], first.slotOf(0, 2, 2));
  EXPECT_EQ(second.slotMapping[2], second.slotOf(1, 2, 2));
}

TEST(BatchTest, BuilderRefusesTooManyTokens) {
  BatchBuilder builder(1, 2, 2);
  EXPECT_THAT(messageOf(builder.next({{{1, 2, 3}}})),
              HasSubstr("would have 3 tokens, its maximum is 2"));
}

TEST(BatchTest, VerifyNamesWhatIsWrong) {
  auto broken = [](auto change) {
    Batch batch = makeSequenceBatch(0, {1, 2});
    change(batch);
    return llvm::toString(batch.verify());
  };
  EXPECT_THAT(broken([](Batch &b) { b.positions.pop_back(); }),
              HasSubstr("positions has 1 elements, expected 2"));
  EXPECT_THAT(broken([](Batch &b) { b.slotMapping.pop_back(); }),
              HasSubstr("slot_mapping has 1 elements, expected 2"));
  EXPECT_THAT(broken([](Batch &b) { b.cuSeqlens = {0}; }),
              HasSubstr("cu_seqlens has 1 elements, expected 2"));
  EXPECT_THAT(broken([](Batch &b) { b.blockTable.clear(); }),
              HasSubstr("block_table has 0 elements"));
  EXPECT_THAT(broken([](Batch &b) { b.cuSeqlens = {0, 3}; }),
              HasSubstr("ends at 3, but there are 2 rows"));
  EXPECT_THAT(broken([](Batch &b) { b.cuSeqlens = {1, 2}; }),
              HasSubstr("starts at 1"));
  EXPECT_THAT(broken([](Batch &b) { b.cuSeqlens = {0, -1}; }),
              HasSubstr("descends at sequence 0"));
  EXPECT_THAT(broken([](Batch &b) { b.kvLens = {-1}; }),
              HasSubstr("kv_lens of sequence 0 is -1"));
  EXPECT_THAT(broken([](Batch &b) { b.logitsIndices = {2}; }),
              HasSubstr("logits index 2 is outside the 2 rows"));
}

} // namespace
