#include "TestModel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

using namespace prefill;
using namespace prefill::test;
using testing::HasSubstr;

namespace {

std::vector<int32_t> makeTokens(int64_t count, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t &token : tokens)
    token = static_cast<int32_t>(random() % testVocab);
  return tokens;
}

double relativeError(const std::vector<float> &given, const float *expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < given.size(); ++i) {
    difference += std::pow(double(given[i]) - expected[i], 2);
    norm += std::pow(double(expected[i]), 2);
  }
  return std::sqrt(difference / norm);
}

bool bitEqual(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> lastRow(const std::vector<float> &logits) {
  return {logits.end() - testVocab, logits.end()};
}

constexpr module::KVLayout layouts[] = {module::KVLayout::contiguous,
                                        module::KVLayout::head_major,
                                        module::KVLayout::paged_nhd};

class SessionOverLayouts : public testing::TestWithParam<module::KVLayout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, SessionOverLayouts,
                         testing::ValuesIn(layouts), [](const auto &info) {
                           return module::EnumNameKVLayout(info.param);
                         });

TEST_P(SessionOverLayouts, EveryLengthGivesTheReferenceLogits) {
  std::vector<int32_t> tokens = makeTokens(testMaxSeq);
  std::vector<float> reference = referenceLogits(tokens, 7);
  for (int threads : {1, 3}) {
    TestRun run({GetParam()}, threads);
    for (int64_t length = 1; length <= testMaxSeq; ++length) {
      ASSERT_EQ(prefill_kv_cache_truncate(run.cache, 0, 0), PREFILL_OK);
      std::vector<float> logits =
          run.prefill({tokens.begin(), tokens.begin() + length}, true);
      ASSERT_LT(relativeError(logits, reference.data()), 1e-6) << length;
      EXPECT_EQ(prefill_kv_cache_length(run.cache, 0), length);
      if (length % 8 == 1) {
        ASSERT_EQ(prefill_kv_cache_truncate(run.cache, 0, 0), PREFILL_OK);
        EXPECT_TRUE(
            bitEqual(run.prefill({tokens.begin(), tokens.begin() + length}),
                     lastRow(logits)));
      }
    }
  }
}

TEST_P(SessionOverLayouts, ChunksAndDecodeContinueTheCache) {
  std::vector<int32_t> tokens = makeTokens(29);
  TestRun whole({GetParam()});
  std::vector<float> expected = whole.prefill(tokens);
  for (size_t chunk : {1, 2, 3, 5, 16, 28}) {
    TestRun run({GetParam()});
    std::vector<float> logits(testVocab);
    for (size_t first = 0; first < tokens.size(); first += chunk) {
      size_t last = std::min(tokens.size(), first + chunk);
      if (last - first == 1) {
        ASSERT_EQ(
            prefill_session_decode(run.session, tokens[first], logits.data()),
            PREFILL_OK);
      } else {
        logits = run.prefill({tokens.begin() + first, tokens.begin() + last});
      }
    }
    EXPECT_TRUE(bitEqual(logits, expected)) << chunk;
    // What lies in the cache is the same too, wherever it lies.
    for (int64_t layer = 0; layer < testLayers; ++layer) {
      size_t size = tokens.size() * testKVHeads * testHeadDim;
      std::vector<float> k1(size), v1(size), k2(size), v2(size);
      ASSERT_EQ(
          prefill_kv_cache_read(whole.cache, layer, 0, k1.data(), v1.data()),
          PREFILL_OK);
      ASSERT_EQ(
          prefill_kv_cache_read(run.cache, layer, 0, k2.data(), v2.data()),
          PREFILL_OK);
      EXPECT_TRUE(bitEqual(k1, k2) && bitEqual(v1, v2)) << layer;
      EXPECT_FALSE(bitEqual(k1, v1));
    }
  }
}

TEST_P(SessionOverLayouts, ABatchEqualsItsSequencesAlone) {
  constexpr int64_t numSequences = 4;
  TestRun run({GetParam()}, 2, numSequences, 40);
  std::vector<std::vector<int32_t>> prompts = {
      makeTokens(17, 1), makeTokens(1, 2), makeTokens(30, 3), makeTokens(4, 4)};
  // In two steps, the second of them with part of the sequences, in another
  // order and onto filled caches.
  std::vector<std::vector<float>> results(numSequences);
  auto step = [&](const std::vector<int32_t> &sequences, auto part) {
    std::vector<int32_t> tokens, cuSeqlens = {0};
    for (int32_t s : sequences) {
      std::vector<int32_t> own = part(prompts[s]);
      tokens.insert(tokens.end(), own.begin(), own.end());
      cuSeqlens.push_back(static_cast<int32_t>(tokens.size()));
    }
    std::vector<float> logits(sequences.size() * testVocab);
    ASSERT_EQ(prefill_session_prefill_batch(
                  run.session, tokens.data(), cuSeqlens.data(),
                  sequences.data(), static_cast<int64_t>(sequences.size()),
                  logits.data()),
              PREFILL_OK)
        << prefill_last_error();
    for (size_t i = 0; i < sequences.size(); ++i)
      results[sequences[i]].assign(logits.begin() + i * testVocab,
                                   logits.begin() + (i + 1) * testVocab);
  };
  step({0, 1, 2, 3}, [](const std::vector<int32_t> &p) {
    return std::vector<int32_t>(p.begin(), p.begin() + (p.size() + 1) / 2);
  });
  step({3, 0, 2}, [](const std::vector<int32_t> &p) {
    return std::vector<int32_t>(p.begin() + (p.size() + 1) / 2, p.end());
  });
  for (int64_t s = 0; s < numSequences; ++s) {
    TestRun alone({GetParam()});
    EXPECT_TRUE(bitEqual(results[s], alone.prefill(prompts[s]))) << s;
    EXPECT_EQ(prefill_kv_cache_length(run.cache, s),
              static_cast<int64_t>(prompts[s].size()));
  }
}

TEST_P(SessionOverLayouts, PoisonDoesNotReachTheResult) {
  for (int threads : {1, 2}) {
    std::vector<int32_t> tokens = makeTokens(37);
    TestRun plain({GetParam()}, threads), poisoned({GetParam()}, threads);
    ASSERT_EQ(prefill_session_set_poison(poisoned.session, 1), PREFILL_OK);
    for (auto [first, last] :
         {std::pair{0, 1}, {1, 6}, {6, 23}, {23, 24}, {24, 37}}) {
      std::vector<int32_t> part(tokens.begin() + first, tokens.begin() + last);
      ASSERT_EQ(prefill_kv_cache_poison_unused(poisoned.cache), PREFILL_OK);
      EXPECT_TRUE(
          bitEqual(plain.prefill(part, true), poisoned.prefill(part, true)))
          << first;
    }
  }
}

TEST(Session, PoisonFindsAKernelThatReadsPaddedRows) {
  TestModelOptions options;
  options.linearKernel = "tk_linear_reads_padding";
  TestRun run(options);
  EXPECT_TRUE(std::isfinite(run.prefill(makeTokens(5))[0]));
  ASSERT_EQ(prefill_kv_cache_truncate(run.cache, 0, 0), PREFILL_OK);
  ASSERT_EQ(prefill_session_set_poison(run.session, 1), PREFILL_OK);
  EXPECT_TRUE(std::isnan(run.prefill(makeTokens(5), true)[0]));
}

struct Misbehaviour {
  const char *kernel, *message;
};
class SessionCanary : public testing::TestWithParam<Misbehaviour> {};
INSTANTIATE_TEST_SUITE_P(
    Kernels, SessionCanary,
    testing::Values(
        Misbehaviour{"tk_linear_past_buffer", "wrote behind buffer 'hidden'"},
        Misbehaviour{"tk_linear_before_buffer", "wrote before buffer 'hidden'"},
        Misbehaviour{"tk_linear_past_scratch",
                     "wrote behind the scratch of thread 0"},
        Misbehaviour{"tk_linear_past_weight",
                     "wrote behind weight 'model.layers.0.packed'"}),
    [](const auto &info) { return info.param.kernel; });

TEST_P(SessionCanary, NamesKernelAndVictim) {
  TestModelOptions options;
  options.linearKernel = GetParam().kernel;
  TestRun run(options);
  ASSERT_EQ(prefill_session_set_poison(run.session, 1), PREFILL_OK);
  std::vector<int32_t> tokens = makeTokens(4);
  float logits[testVocab];
  EXPECT_EQ(prefill_session_prefill(run.session, tokens.data(), 4, 0, logits),
            PREFILL_INVALID_MODULE);
  EXPECT_THAT(prefill_last_error(), HasSubstr(GetParam().message));
  EXPECT_THAT(prefill_last_error(),
              HasSubstr(std::string("kernel '") + GetParam().kernel +
                        "' (launch 3, layer 0)"));
  EXPECT_EQ(prefill_kv_cache_length(run.cache, 0), 0);
}

TEST(Session, TheScoreMatrixServesUnfusedAttention) {
  TestModelOptions options;
  options.unfusedAttention = true;
  TestRun unfused(options, 2), fused({}, 2);
  std::vector<int32_t> tokens = makeTokens(23);
  EXPECT_TRUE(
      bitEqual(unfused.prefill(tokens, true), fused.prefill(tokens, true)));
  prefill_memory with, without;
  ASSERT_EQ(prefill_session_memory(unfused.session, &with), PREFILL_OK);
  ASSERT_EQ(prefill_session_memory(fused.session, &without), PREFILL_OK);
  // f32 [num_q_heads, M_pad, max_kv]; its kernel has no scratch of its own but
  // tk_linear's 256 bytes remain, as they do in the fused module.
  EXPECT_EQ(with.temporaries_bytes - without.temporaries_bytes,
            uint64_t(testQHeads) * 32 * 23 * 4);
  ASSERT_EQ(prefill_session_set_poison(unfused.session, 1), PREFILL_OK);
  EXPECT_TRUE(bitEqual(unfused.prefill(tokens), fused.prefill(tokens)));
}

TEST(Session, CountsMemoryInFourClasses) {
  TestRun run({}, 2, 3, 40);
  run.prefill(makeTokens(17)); // M_pad 32, R_pad 1
  prefill_memory memory;
  ASSERT_EQ(prefill_session_memory(run.session, &memory), PREFILL_OK);
  EXPECT_EQ(memory.weights_bytes,
            4u * (testVocab * testHidden + testMaxSeq * 2 +
                  testLayers * testHidden * testHidden));
  EXPECT_EQ(memory.kv_cache_bytes,
            4u * 2 * testLayers * 3 * 40 * testKVHeads * testHeadDim);
  EXPECT_EQ(memory.activation_peak_bytes,
            4u * (32 * 2 * testHidden + testVocab));
  // Scratch of two threads (256 each) and the metadata: tokens, positions,
  // slots, cu_seqlens, kv_lens, block_table, logits_indices.
  EXPECT_EQ(memory.temporaries_bytes,
            2u * 256 + 128 + 128 + 256 + 64 + 64 + 64 + 64);
  // A shorter call needs less and does not raise the peak.
  prefill_memory later;
  run.prefill(makeTokens(2));
  ASSERT_EQ(prefill_session_memory(run.session, &later), PREFILL_OK);
  EXPECT_EQ(later.activation_peak_bytes, memory.activation_peak_bytes);
}

TEST(Session, CountsTheFlopsOfTheVisiblePart) {
  TestRun run;
  run.prefill(makeTokens(5));
  EXPECT_EQ(prefill_session_flops(run.session), 5000u + 100 + 10 * 15 + 5);
  run.prefill(makeTokens(2), true);
  EXPECT_EQ(prefill_session_flops(run.session),
            2000u + 200 + 10 * (6 + 7) + 6 + 7);
}

TEST(Session, TimesEveryLaunch) {
  TestRun run;
  uint64_t start, duration;
  EXPECT_EQ(prefill_session_launch_time(run.session, 0, &start, &duration),
            PREFILL_INVALID_ARGUMENT);
  run.prefill(makeTokens(5));
  prefill_module_info info;
  ASSERT_EQ(prefill_module_get_info(run.module, &info), PREFILL_OK);
  EXPECT_EQ(info.num_launches, 2 + 3 * testLayers);
  EXPECT_EQ(info.kernels_per_layer, 3);
  uint64_t end = 0;
  for (int64_t i = 0; i < info.num_launches; ++i) {
    ASSERT_EQ(prefill_session_launch_time(run.session, i, &start, &duration),
              PREFILL_OK);
    EXPECT_GE(start, end);
    end = start + duration;
  }
  prefill_launch_info launch;
  ASSERT_EQ(prefill_module_get_launch(run.module, 2, &launch), PREFILL_OK);
  EXPECT_STREQ(launch.name, "tk_attention_64");
  EXPECT_EQ(launch.layer, 0);
}

TEST_P(SessionOverLayouts, CallsOfEachLengthHaveTheirSchedule) {
  constexpr int64_t shortRows = 5;
  TestModelOptions both{GetParam()};
  both.shortRows = shortRows;
  for (bool poison : {false, true}) {
    TestRun one({GetParam()}), two(both);
    ASSERT_EQ(prefill_session_set_poison(two.session, poison), PREFILL_OK);
    EXPECT_EQ(prefill_session_num_launches(two.session), 8);
    for (int64_t count : {3, 7, 5, 1, 6, 1}) {
      std::vector<int32_t> tokens = makeTokens(count, uint32_t(count));
      EXPECT_TRUE(
          bitEqual(two.prefill(tokens, true), one.prefill(tokens, true)))
          << count;
      prefill_launch_info launch;
      ASSERT_EQ(prefill_session_get_launch(two.session, 0, &launch),
                PREFILL_OK);
      EXPECT_STREQ(launch.name, count <= shortRows ? "short" : "tk_embed");
      EXPECT_EQ(prefill_session_kernels_per_layer(two.session), 3);
      EXPECT_EQ(prefill_session_get_launch(two.session, 8, &launch),
                PREFILL_INVALID_ARGUMENT);
      EXPECT_STREQ(prefill_last_error(), "launch 8, but the last call had 8");
    }
  }
}

// ---- Errors.

class SessionErrors : public testing::Test {
protected:
  std::string errorOf(std::vector<int32_t> tokens,
                      std::vector<int32_t> cuSeqlens,
                      std::vector<int32_t> sequences) {
    std::vector<float> logits(8 * testVocab);
    prefill_status status = prefill_session_prefill_batch(
        run.session, tokens.data(), cuSeqlens.data(), sequences.data(),
        static_cast<int64_t>(sequences.size()), logits.data());
    EXPECT_EQ(status, PREFILL_INVALID_ARGUMENT);
    return status == PREFILL_OK ? "" : prefill_last_error();
  }

  TestRun run{{}, 1, 2, 40};
};

TEST_F(SessionErrors, Tokens) {
  EXPECT_EQ(errorOf({0, 13}, {0, 2}, {0}),
            "token 13 at index 1, expected 0 to vocab_size - 1 = 12");
  EXPECT_THAT(errorOf({-1}, {0, 1}, {0}), HasSubstr("token -1 at index 0"));
  EXPECT_EQ(prefill_kv_cache_length(run.cache, 0), 0);
}

TEST_F(SessionErrors, Lengths) {
  EXPECT_EQ(errorOf(makeTokens(41), {0, 41}, {1}),
            "sequence 1: 41 tokens after 0 stored ones exceed the KV cache's "
            "capacity 40");
  EXPECT_EQ(errorOf(makeTokens(65), {0, 65}, {1}),
            "sequence 1: 65 tokens after 0 stored ones exceed the module's "
            "maximum length 64");
  run.prefill(makeTokens(39));
  EXPECT_EQ(errorOf(makeTokens(2), {0, 2}, {0}),
            "sequence 0: 2 tokens after 39 stored ones exceed the KV cache's "
            "capacity 40");
  run.prefill({1});
  EXPECT_THAT(errorOf({1}, {0, 1}, {0}), HasSubstr("1 tokens after 40"));
  float logits[testVocab];
  EXPECT_EQ(
      prefill_session_prefill(run.session, makeTokens(1).data(), 0, 0, logits),
      PREFILL_INVALID_ARGUMENT);
  EXPECT_STREQ(prefill_last_error(),
               "the prompt has 0 tokens, expected 1 to 2^31 - 1");
  EXPECT_THAT(errorOf({1, 2}, {0, 1, 1}, {1, 0}),
              HasSubstr("sequence 0: the prompt has 0 tokens"));
  EXPECT_THAT(errorOf({1, 2}, {0, 2, 1}, {1, 0}),
              HasSubstr("sequence 0: the prompt has -1 tokens"));
  EXPECT_THAT(errorOf({1, 2}, {1, 2}, {1}), HasSubstr("starts with 1"));
}

TEST_F(SessionErrors, Sequences) {
  EXPECT_THAT(errorOf({1}, {0, 1}, {2}),
              HasSubstr("sequence 2, but the cache has 2"));
  EXPECT_THAT(errorOf({1}, {0, 1}, {-1}), HasSubstr("sequence -1"));
  EXPECT_THAT(errorOf({1, 1}, {0, 1, 2}, {1, 1}),
              HasSubstr("sequence 1 appears twice"));
  EXPECT_THAT(
      errorOf({1, 1, 1}, {0, 1, 2, 3}, {0, 1, 0}),
      HasSubstr("number of sequences is 3, expected 1 to the cache's 2"));
}

TEST_F(SessionErrors, Cache) {
  prefill_kv_cache *cache = nullptr;
  EXPECT_EQ(prefill_kv_cache_create(run.module, 1, 65, &cache),
            PREFILL_INVALID_ARGUMENT);
  EXPECT_STREQ(prefill_last_error(), "KV cache capacity is 65 tokens, expected "
                                     "1 to the module's max_seq 64");
  EXPECT_EQ(prefill_kv_cache_create(run.module, 0, 0, &cache),
            PREFILL_INVALID_ARGUMENT);
  EXPECT_EQ(prefill_kv_cache_truncate(run.cache, 0, 1),
            PREFILL_INVALID_ARGUMENT);
  EXPECT_EQ(prefill_kv_cache_truncate(run.cache, 2, 0),
            PREFILL_INVALID_ARGUMENT);
  EXPECT_EQ(prefill_session_prefill(nullptr, nullptr, 1, 0, nullptr),
            PREFILL_INVALID_ARGUMENT);
}

TEST_F(SessionErrors, PartsOfDifferentModules) {
  TestRun other;
  prefill_session *session = nullptr;
  EXPECT_EQ(
      prefill_session_create(run.module, other.weights, run.cache, &session),
      PREFILL_INVALID_ARGUMENT);
  EXPECT_STREQ(prefill_last_error(),
               "the weights were loaded for another module");
  EXPECT_EQ(
      prefill_session_create(run.module, run.weights, other.cache, &session),
      PREFILL_INVALID_ARGUMENT);
}

TEST(Device, OnlyEmulatorsAreConfigured) {
  prefill_device *device = nullptr;
  ASSERT_EQ(prefill_device_create("cpu", 1, &device), PREFILL_OK);
  EXPECT_EQ(prefill_device_set_emulation(device, 1, 0), PREFILL_UNSUPPORTED);
  EXPECT_THAT(prefill_last_error(), HasSubstr("expected cuda-emu:sm_XX"));
  prefill_device_destroy(device);
  EXPECT_EQ(prefill_device_set_emulation(nullptr, 1, 0),
            PREFILL_INVALID_ARGUMENT);
  TestRun run;
  const char *counters = nullptr;
  run.prefill({1});
  ASSERT_EQ(prefill_session_counters(run.session, &counters), PREFILL_OK);
  EXPECT_STREQ(counters, "");
}

TEST(Device, NamesWhatItDoesNotHave) {
  prefill_device *device = nullptr;
  EXPECT_EQ(prefill_device_create("cuda", 0, &device), PREFILL_UNSUPPORTED);
  EXPECT_THAT(prefill_last_error(), HasSubstr("no CUDA device"));
  EXPECT_EQ(prefill_device_create("cuda-emu", 0, &device),
            PREFILL_INVALID_ARGUMENT);
  EXPECT_THAT(prefill_last_error(), HasSubstr("expected cuda-emu:sm_XX"));
  EXPECT_EQ(prefill_device_create("cpu:sse", 0, &device),
            PREFILL_INVALID_ARGUMENT);
  EXPECT_THAT(prefill_last_error(), HasSubstr("expected cpu, cpu:avx2"));
  EXPECT_EQ(prefill_device_create("tpu", 0, &device), PREFILL_INVALID_ARGUMENT);
  EXPECT_EQ(prefill_device_create("cpu", -1, &device),
            PREFILL_INVALID_ARGUMENT);
}

} // namespace
