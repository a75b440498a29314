// The thread pool, the allocator and the cache by themselves.
#include "TestModel.h"

#include "core/ActivationArena.h"
#include "core/Canary.h"
#include "core/KVCache.h"
#include "core/LoadedModule.h"
#include "core/Memory.h"
#include "core/ThreadPool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <mutex>
#include <set>
#include <thread>

using namespace prefill;
using namespace prefill::rt;
using namespace prefill::test;
using testing::HasSubstr;

namespace {

TEST(ThreadPool, CoversEveryRangeOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int64_t count : {0, 1, 2, 3, 7, 64, 1000, 12345}) {
      std::vector<std::atomic<int>> visits(count);
      std::vector<std::atomic<int>> inside(threads);
      pool.run(count, [&](int thread, int64_t begin, int64_t end) {
        ASSERT_TRUE(thread >= 0 && thread < threads);
        // Scratch of a thread is never shared.
        ASSERT_EQ(inside[thread]++, 0);
        ASSERT_LT(begin, end);
        for (int64_t i = begin; i < end; ++i)
          ++visits[i];
        --inside[thread];
      });
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(visits[i], 1) << threads << " " << count;
    }
  }
}

// A thread may come so late that it meets the launch after the one it was woken
// for, while that one is being set up.
TEST(ThreadPool, ManyShortLaunches) {
  for (int threads : {2, 4}) {
    ThreadPool pool(threads);
    for (int launch = 0; launch < 400000; ++launch) {
      int64_t count = 2 + launch * 7 % 40;
      std::atomic<int64_t> sum{0}, indices{0};
      pool.run(count, [&](int, int64_t begin, int64_t end) {
        sum += end - begin;
        indices += (begin + end - 1) * (end - begin) / 2;
      });
      ASSERT_EQ(sum, count);
      ASSERT_EQ(indices, count * (count - 1) / 2);
    }
  }
}

TEST(ThreadPool, CallersTakeTurns) {
  ThreadPool pool(3);
  std::atomic<int> running{0}, launches{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        std::atomic<int64_t> mine{0};
        pool.run(10, [&](int, int64_t begin, int64_t end) {
          ++running;
          mine += end - begin;
          --running;
        });
        EXPECT_EQ(mine, 10);
        ++launches;
      }
    });
  for (std::thread &caller : callers)
    caller.join();
  EXPECT_EQ(launches, 800);
  EXPECT_EQ(running, 0);
}

TEST(ThreadPool, ChunksKeepGrainsTogetherAndShrinkAtTheEnd) {
  constexpr int threads = 2;
  constexpr int64_t count = 10000, grain = 50;
  ThreadPool pool(threads);
  std::mutex guard;
  std::map<int64_t, int64_t> chunks;
  pool.run(
      count,
      [&](int, int64_t begin, int64_t end) {
        std::lock_guard<std::mutex> lock(guard);
        chunks[begin] = end;
      },
      grain);
  int64_t expected = 0;
  for (auto [begin, end] : chunks) {
    EXPECT_EQ(begin, expected);
    expected = end;
    // What is left for a thread is half a grain or more.
    if (count - begin > threads * grain + 2 * threads) {
      EXPECT_EQ(begin % grain, 0) << end;
      EXPECT_EQ(end % grain, 0) << begin;
    }
    EXPECT_LE(end - begin, count / (threads * 8) + grain / 2);
  }
  EXPECT_EQ(expected, count);
  EXPECT_LE(count - chunks.rbegin()->first, 1);
}

TEST(ThreadPool, CountsBeyond32Bits) {
  for (int64_t count :
       {(int64_t(1) << 31) + 3, (int64_t(1) << 40) - 1, int64_t(1) << 60}) {
    ThreadPool pool(2);
    std::atomic<int64_t> sum{0};
    pool.run(
        count, [&](int, int64_t begin, int64_t end) { sum += end - begin; },
        1000);
    EXPECT_EQ(sum, count);
  }
}

TEST(ThreadPool, IdleThreadsSleep) {
  auto processTime = [] {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
  };
  // A pool that may spin, and one that has more threads than processors.
  for (int threads : {ThreadPool::availableProcessors(), 4}) {
    ThreadPool pool(threads);
    pool.run(100, [](int, int64_t, int64_t) {});
    double before = processTime();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    double budget =
        std::chrono::duration<double>(ThreadPool::spinBudget).count();
    EXPECT_LT(processTime() - before, threads * budget + 0.01);
  }
}

TEST(Allocator, CountsByClassAndFreesOnDestruction) {
  Allocator allocator;
  for (uint64_t size : {uint64_t(100), uint64_t(3) << 20}) {
    auto allocation = allocator.allocate(MemoryClass::kvCache, size, "x");
    ASSERT_TRUE(allocation);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(allocation->data()) % 64, 0u);
    EXPECT_EQ(allocator.current(MemoryClass::kvCache), size);
    EXPECT_EQ(allocator.current(MemoryClass::weights), 0u);
    EXPECT_TRUE(allocation->guardIntact());
    Allocation moved = std::move(*allocation);
    moved.data()[size - 1] = std::byte(1);
    EXPECT_TRUE(moved.guardIntact());
  }
  EXPECT_EQ(allocator.current(MemoryClass::kvCache), 0u);
  EXPECT_EQ(allocator.peak(MemoryClass::kvCache), uint64_t(3) << 20);
  auto empty = allocator.allocate(MemoryClass::weights, 0, "nothing");
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->guardIntact());
}

TEST(Allocator, NamesTheClassWhenMemoryIsOut) {
  Allocator allocator;
  allocator.setLimit(1000);
  auto first = allocator.allocate(MemoryClass::weights, 600, "weight 'w'");
  ASSERT_TRUE(first);
  auto second =
      allocator.allocate(MemoryClass::temporaries, 500, "kernel scratch");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::outOfMemory);
  EXPECT_EQ(second.error().message,
            "out of memory: class temporaries: 500 bytes for kernel scratch, "
            "but only 400 of 1000 are left");
  Allocator unlimited;
  auto huge = unlimited.allocate(MemoryClass::activationPeak, uint64_t(1) << 46,
                                 "activations");
  ASSERT_FALSE(huge);
  EXPECT_THAT(huge.error().message,
              HasSubstr("out of memory: class activation_peak: 70368744177664 "
                        "bytes for activations, but only"));
  EXPECT_EQ(unlimited.peak(MemoryClass::activationPeak), 0u);
}

TEST(ActivationArena, PoisonIsNaNOrTheIntegerThatNobodyWrites) {
  module::ModuleT file = makeTestModule();
  constexpr uint32_t floats = 0, integers = 1;
  file.plans[0]->schedules[0]->buffers[integers]->dtype = module::DType::i8;
  std::vector<uint8_t> bytes = serialize(file);
  const module::Schedule &schedule =
      *module::GetModule(bytes.data())->plans()->Get(0)->schedules()->Get(0);
  Allocator allocator;
  ActivationArena arena;
  ASSERT_TRUE(arena.prepare(schedule, /*rowsPad=*/4, /*logitRowsPad=*/1,
                            /*poison=*/true, allocator));
  auto rows = [&](uint32_t index, int64_t first, int64_t last) {
    const module::Buffer &buffer = *schedule.buffers()->Get(index);
    std::vector<uint8_t> copy((last - first) * buffer.row_bytes());
    EXPECT_TRUE(allocator.memory().download(
        copy.data(), arena.buffer(index) + first * buffer.row_bytes(),
        copy.size()));
    return copy;
  };
  EXPECT_THAT(rows(floats, 0, 4), testing::Each(0xff));
  EXPECT_THAT(rows(integers, 0, 4), testing::Each(0xc0));
  for (uint32_t index : {floats, integers})
    ASSERT_TRUE(allocator.memory().fill(
        arena.buffer(index), 1, arena.bytes(*schedule.buffers()->Get(index))));
  ASSERT_TRUE(arena.poisonPaddedRows(schedule, 3, 1));
  for (uint32_t index : {floats, integers})
    EXPECT_THAT(rows(index, 0, 3), testing::Each(1));
  EXPECT_THAT(rows(floats, 3, 4), testing::Each(0xff));
  EXPECT_THAT(rows(integers, 3, 4), testing::Each(0xc0));
  auto damage = arena.damage(schedule);
  ASSERT_TRUE(damage);
  EXPECT_EQ(*damage, "");
}

class CacheTest : public testing::Test {
protected:
  std::unique_ptr<LoadedModule> load(module::ModuleT file) {
    std::vector<uint8_t> bytes = serialize(file);
    auto loaded =
        LoadedModule::loadMemory(**device, bytes.data(), bytes.size());
    EXPECT_TRUE(loaded) << loaded.error().message;
    return std::move(*loaded);
  }
  Result<std::unique_ptr<Device>> device = Device::create("cpu", 1);
};

TEST_F(CacheTest, LayoutsHaveTheirShapes) {
  auto layoutOf = [](module::KVLayout layout, int blockSize, int dimQK = 8,
                     int dimV = 8) {
    module::KVCacheSpec spec(layout, module::DType::bf16, 2, dimQK, dimV,
                             blockSize);
    auto result = KVCacheLayout::create(spec, 3, 10, 2);
    EXPECT_TRUE(result);
    return *result;
  };
  KVCacheLayout l = layoutOf(module::KVLayout::contiguous, 64);
  EXPECT_EQ(l.numBlocks, 3); // K and V [3, 10, 2, 8]
  EXPECT_EQ(l.tokenStride, 16);
  EXPECT_EQ(l.headStride, 8);
  EXPECT_EQ(l.blockStride, 160);
  EXPECT_EQ(l.valueBase, 480);
  EXPECT_EQ(l.layerElements, 960);
  l = layoutOf(module::KVLayout::head_major, 64);
  EXPECT_EQ(l.tokenStride, 8); // K and V [3, 2, 10, 8]
  EXPECT_EQ(l.headStride, 80);
  EXPECT_EQ(l.blockStride, 160);
  EXPECT_EQ(l.valueBase, 480);
  l = layoutOf(module::KVLayout::paged_nhd, 4);
  EXPECT_EQ(l.numBlocks, 9); // [9, 2, 4, 2, 8]
  EXPECT_EQ(l.blocksPerSequence, 3);
  EXPECT_EQ(l.tokenStride, 16);
  EXPECT_EQ(l.headStride, 8);
  EXPECT_EQ(l.blockStride, 128);
  EXPECT_EQ(l.valueBase, 64);
  EXPECT_EQ(l.layerElements, 9 * 128);
  l = layoutOf(module::KVLayout::contiguous, 64, 8, 4);
  EXPECT_EQ(l.headStride, 8); // one stride for both
}

TEST_F(CacheTest, PagesOfPairsHoldEveryElementOnce) {
  for (module::DType dtype : {module::DType::bf16, module::DType::f32}) {
    // Keys are padded to pairs, values to 32 features.
    int64_t pack = dtype == module::DType::bf16 ? 2 : 1;
    module::KVCacheSpec spec(module::KVLayout::paged_vnni, dtype, 2, 9, 40, 32);
    auto created = KVCacheLayout::create(spec, 3, 40, 2);
    ASSERT_TRUE(created);
    const KVCacheLayout &l = *created;
    EXPECT_EQ(l.blocksPerSequence, 2);
    EXPECT_EQ(l.numBlocks, 6);
    EXPECT_EQ(l.keyFeatures, 8 + pack);
    EXPECT_EQ(l.valueFeatures, 64);
    EXPECT_EQ(l.headStride, 32 * 64);
    EXPECT_EQ(l.valueBase, 2 * 32 * 64);
    EXPECT_EQ(l.blockStride, 2 * l.valueBase);
    EXPECT_EQ(l.layerElements, 6 * l.blockStride);
    std::set<int64_t> keys, values;
    for (int64_t b = 0; b < l.numBlocks; ++b)
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t t = 0; t < 32; ++t) {
          int64_t page = b * l.blockStride + h * l.headStride;
          for (int64_t d = 0; d < l.keyFeatures; ++d) {
            int64_t at = l.keyOffset(b, t, h, d);
            EXPECT_EQ(at, page + (d / pack * 32 + t) * pack + d % pack);
            EXPECT_TRUE(keys.insert(at).second);
          }
          for (int64_t d = 0; d < l.valueFeatures; ++d) {
            int64_t at = l.valueOffset(b, t, h, d);
            EXPECT_EQ(at, page + d / 32 * 1024 +
                              (t / pack * 32 + d % 32) * pack + t % pack);
            EXPECT_TRUE(values.insert(at).second);
          }
        }
    EXPECT_LT(*keys.rbegin() + l.valueBase - 1, l.layerElements);
    EXPECT_LT(*values.rbegin() + l.valueBase, l.layerElements);
  }
}

TEST_F(CacheTest, OverflowIsAnError) {
  module::KVCacheSpec spec(module::KVLayout::contiguous, module::DType::bf16,
                           65536, 65536, 65536, INT32_MAX);
  auto result = KVCacheLayout::create(spec, 1, INT32_MAX, 1);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message,
              HasSubstr("out of memory: class kv_cache: 1 sequences of "
                        "2147483647 tokens"));
}

TEST_F(CacheTest, BlocksComeFromAFreeListInNoOrder) {
  TestModelOptions options;
  options.layout = module::KVLayout::paged_nhd;
  auto loaded = load(makeTestModule(options));
  auto created = KVCache::create(*loaded, 2, 32);
  ASSERT_TRUE(created);
  KVCache &cache = **created;
  ASSERT_TRUE(cache.poisonUnused());
  cache.reserve(0, 32);
  cache.reserve(1, 32);
  std::set<int32_t> ids(cache.blocks(0).begin(), cache.blocks(0).end());
  ids.insert(cache.blocks(1).begin(), cache.blocks(1).end());
  EXPECT_EQ(ids.size(), 16u);
  EXPECT_EQ(*ids.rbegin(), 15);
  EXPECT_FALSE(std::is_sorted(cache.blocks(0).begin(), cache.blocks(0).end()));
  EXPECT_EQ(cache.slot(0, 9), int64_t(cache.blocks(0)[2]) * 4 + 1);
  cache.setLength(0, 32);
  ASSERT_TRUE(cache.truncate(0, 9)); // keeps three blocks
  EXPECT_EQ(cache.blocks(0).size(), 3u);
  cache.reserve(0, 12);
  EXPECT_EQ(cache.blocks(0).size(), 3u);
  cache.reserve(0, 13);
  EXPECT_EQ(cache.blocks(0).size(), 4u);
}

TEST_F(CacheTest, PoisonSparesWhatIsStored) {
  for (module::KVLayout layout :
       {module::KVLayout::contiguous, module::KVLayout::head_major,
        module::KVLayout::paged_nhd}) {
    TestModelOptions options;
    options.layout = layout;
    auto loaded = load(makeTestModule(options));
    auto created = KVCache::create(*loaded, 2, 10);
    ASSERT_TRUE(created);
    KVCache &cache = **created;
    cache.reserve(1, 5);
    cache.setLength(1, 5);
    std::vector<float> keys(5 * testKVHeads * testHeadDim, 1), values = keys;
    ASSERT_TRUE(cache.read(1, 1, keys.data(), values.data()));
    EXPECT_EQ(keys, std::vector<float>(keys.size(), 0));
    ASSERT_TRUE(cache.poisonUnused());
    ASSERT_TRUE(cache.read(1, 1, keys.data(), values.data()));
    EXPECT_EQ(keys, std::vector<float>(keys.size(), 0));
    EXPECT_EQ(values, std::vector<float>(keys.size(), 0));
    cache.reserve(1, 10);
    cache.setLength(1, 10);
    keys.resize(10 * testKVHeads * testHeadDim);
    values.resize(keys.size());
    ASSERT_TRUE(cache.read(1, 1, keys.data(), values.data()));
    size_t stored = 5 * testKVHeads * testHeadDim;
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(std::isnan(keys[i]), i >= stored) << i;
      EXPECT_EQ(std::isnan(values[i]), i >= stored) << i;
    }
    EXPECT_TRUE(cache.guardIntact());
    EXPECT_FALSE(cache.read(2, 1, keys.data(), values.data()));
    EXPECT_FALSE(cache.read(1, 2, keys.data(), values.data()));
  }
}

} // namespace
