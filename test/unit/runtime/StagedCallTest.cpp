// Session::stage and runStaged: a call launch by launch.
#include "TestModel.h"
#include "core/Device.h"
#include "core/KVCache.h"
#include "core/LoadedModule.h"
#include "core/ResidentWeights.h"
#include "core/Session.h"
#include "core/TensorSource.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

using namespace prefill;
using namespace prefill::rt;
using namespace prefill::test;
using testing::HasSubstr;

namespace {

class StagedCall : public testing::Test {
protected:
  void SetUp() override {
    device = std::move(*Device::create("cpu", 2));
    std::vector<uint8_t> bytes = serialize(makeTestModule());
    module = std::move(
        *LoadedModule::loadMemory(*device, bytes.data(), bytes.size()));
    weights =
        std::move(*ResidentWeights::load(*module, RandomSource(7), nullptr));
    cache = std::move(*KVCache::create(*module, 1, 0));
    session = std::move(*Session::create(*module, *weights, *cache));
    for (int32_t i = 0; i < count; ++i)
      tokens.push_back(i * 5 % int32_t(testVocab));
  }

  /// Keys and values of every layer, of `count` tokens.
  std::vector<float> readCache() {
    size_t layer = count * testKVHeads * testHeadDim;
    std::vector<float> all(2 * testLayers * layer);
    for (int64_t i = 0; i < testLayers; ++i) {
      float *keys = all.data() + 2 * i * layer;
      EXPECT_TRUE(cache->read(i, 0, keys, keys + layer));
    }
    return all;
  }

  static constexpr int32_t count = 11;
  std::vector<int32_t> tokens;
  int32_t cuSeqlens[2] = {0, count}, sequence = 0;
  std::unique_ptr<Device> device;
  std::unique_ptr<LoadedModule> module;
  std::unique_ptr<ResidentWeights> weights;
  std::unique_ptr<KVCache> cache;
  std::unique_ptr<Session> session;
};

TEST_F(StagedCall, LaunchByLaunchWritesWhatTheWholeCallWrites) {
  std::vector<float> logits(testVocab);
  ASSERT_TRUE(session->run(tokens.data(), cuSeqlens, &sequence, 1, false,
                           logits.data()));
  std::vector<float> expected = readCache();

  ASSERT_TRUE(cache->truncate(0, 0));
  ASSERT_TRUE(cache->poisonUnused());
  {
    // The caller's tokens need not outlive stage().
    std::vector<int32_t> gone = tokens;
    ASSERT_TRUE(session->stage(gone.data(), cuSeqlens, &sequence, 1));
    std::fill(gone.begin(), gone.end(), 0);
  }
  EXPECT_EQ(cache->length(0), 0);
  for (uint32_t i = 0; i < session->schedule().launches()->size(); ++i)
    ASSERT_TRUE(session->runStaged(i));
  EXPECT_EQ(cache->length(0), 0) << "a staged call leaves lengths alone";
  cache->setLength(0, count);
  EXPECT_EQ(readCache(), expected);
}

TEST_F(StagedCall, RefusesWhatRunRefuses) {
  tokens[3] = testVocab;
  Result<void> staged = session->stage(tokens.data(), cuSeqlens, &sequence, 1);
  ASSERT_FALSE(staged);
  EXPECT_EQ(staged.error().code, ErrorCode::invalidArgument);
  EXPECT_THAT(staged.error().message, HasSubstr("token 13 at index 3"));
}

} // namespace
