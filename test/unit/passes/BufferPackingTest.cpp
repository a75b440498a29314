//===- BufferPackingTest.cpp - offsets of buffers -------------------------===//
#include "prefill/Analysis/BufferPacking.h"
#include "gtest/gtest.h"
#include <random>

using namespace mlir::prefill;

namespace {

constexpr int64_t kAlignment = 64;

void expectSound(llvm::ArrayRef<BufferLifetime> buffers,
                 const BufferPacking &packing) {
  ASSERT_EQ(packing.offsets.size(), buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(packing.offsets[i] % kAlignment, 0);
    EXPECT_GE(packing.offsets[i], 0);
    EXPECT_LE(packing.offsets[i] + buffers[i].bytes, packing.totalBytes);
    for (size_t j = 0; j < i; ++j) {
      bool together = buffers[i].first <= buffers[j].last &&
                      buffers[j].first <= buffers[i].last;
      bool overlap =
          packing.offsets[i] < packing.offsets[j] + buffers[j].bytes &&
          packing.offsets[j] < packing.offsets[i] + buffers[i].bytes;
      EXPECT_FALSE(together && overlap) << i << " and " << j;
    }
  }
}

TEST(BufferPacking, NothingNeedsNothing) {
  EXPECT_EQ(packBuffers({}, kAlignment).totalBytes, 0);
}

TEST(BufferPacking, ResultsNeverTakeTheirOperandsPlace) {
  // The second is made in the step that reads the first.
  BufferLifetime chain[] = {{0, 1, 64}, {1, 2, 64}, {2, 3, 64}};
  BufferPacking packing = packBuffers(chain, kAlignment);
  expectSound(chain, packing);
  EXPECT_EQ(packing.totalBytes, 128);
  EXPECT_EQ(packing.offsets[0], packing.offsets[2]);
}

TEST(BufferPacking, GapsAreFilled) {
  // The small ones fit beside the middle one, one after the other.
  BufferLifetime buffers[] = {{0, 9, 256}, {0, 4, 100}, {5, 9, 128}, {0, 4, 4}};
  BufferPacking packing = packBuffers(buffers, kAlignment);
  expectSound(buffers, packing);
  EXPECT_EQ(packing.totalBytes, 256 + 128 + 64);
}

TEST(BufferPacking, WithoutReuseEveryBufferHasItsOwnPlace) {
  BufferLifetime buffers[] = {{0, 1, 64}, {2, 3, 65}, {4, 5, 1}};
  BufferPacking packing = packBuffersWithoutReuse(buffers, kAlignment);
  EXPECT_EQ(packing.offsets, (llvm::SmallVector<int64_t>{0, 64, 192}));
  EXPECT_EQ(packing.totalBytes, 256);
}

TEST(BufferPacking, RandomLivesNeverOverlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    llvm::SmallVector<BufferLifetime> buffers;
    for (unsigned i = 0, count = 1 + random() % 30; i < count; ++i) {
      int64_t first = random() % 20;
      buffers.push_back(
          {first, first + int64_t(random() % 6), 1 + int64_t(random() % 1000)});
    }
    BufferPacking packing = packBuffers(buffers, kAlignment);
    expectSound(buffers, packing);
    EXPECT_GE(packing.totalBytes, peakLiveBytes(buffers, kAlignment));
    EXPECT_LE(packing.totalBytes,
              packBuffersWithoutReuse(buffers, kAlignment).totalBytes);
  }
}

TEST(BufferPacking, PeakIsOfBuffersThatLiveAtOnce) {
  BufferLifetime buffers[] = {{0, 2, 60}, {2, 4, 64}, {3, 5, 128}};
  EXPECT_EQ(peakLiveBytes(buffers, kAlignment), 192);
}

} // namespace
