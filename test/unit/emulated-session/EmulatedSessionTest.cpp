//===- EmulatedSessionTest.cpp - sessions on the backend cuda-emu ---------===//
#include "EmulatedModel.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <nlohmann/json.hpp>

#include <cmath>

using namespace prefill_test;
namespace fb = prefill::module;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

namespace {

std::vector<int32_t> makeTokens(int64_t count, int64_t first = 0) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(int32_t((first + i * 5) % modelVocab));
  return tokens;
}

class OverLayouts : public testing::TestWithParam<fb::KVLayout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, OverLayouts,
                         testing::Values(fb::KVLayout::contiguous,
                                         fb::KVLayout::head_major,
                                         fb::KVLayout::paged_nhd),
                         [](const auto &info) {
                           return fb::EnumNameKVLayout(info.param);
                         });

TEST_P(OverLayouts, PromptsChunksAndDecoding) {
  fb::ModuleT file = makeEmulatedModule({GetParam()});
  std::vector<int32_t> tokens = makeTokens(23);
  std::vector<float> expected = expectedLogits(tokens, EmulatedRun::weightSeed);
  for (size_t piece : {23, 1, 5, 16, 17}) {
    EmulatedRun run(file);
    std::vector<float> logits;
    for (size_t begin = 0; begin < tokens.size(); begin += piece)
      logits = run.prefill(
          {tokens.begin() + begin,
           tokens.begin() + std::min(tokens.size(), begin + piece)});
    ASSERT_EQ(run.error, "");
    EXPECT_EQ(logits, expected) << piece;
    std::vector<float> keys(23 * modelWidth), values = keys;
    ASSERT_EQ(
        prefill_kv_cache_read(run.cache, 0, 0, keys.data(), values.data()),
        PREFILL_OK);
    std::vector<float> first =
        expectedLogits({tokens[0]}, EmulatedRun::weightSeed);
    for (int64_t i = 0; i < modelWidth; ++i) {
      EXPECT_EQ(keys[i], first[i]);
      EXPECT_EQ(values[i], 2 * first[i]);
    }
  }
}

TEST_P(OverLayouts, RaggedBatchesPoisonAndSeeds) {
  fb::ModuleT file = makeEmulatedModule({GetParam()});
  std::vector<std::vector<int32_t>> prompts = {makeTokens(7), makeTokens(1, 3),
                                               makeTokens(13, 2)};
  for (uint64_t seed : {0, 1, 2, 77})
    for (bool poison : {false, true}) {
      EmulatedRun run(file, 3, {.seed = seed});
      ASSERT_EQ(prefill_session_set_poison(run.session, poison), PREFILL_OK);
      if (poison) {
        ASSERT_EQ(prefill_kv_cache_poison_unused(run.cache), PREFILL_OK);
      }
      std::vector<int32_t> tokens, cuSeqlens = {0}, sequences = {2, 0, 1};
      for (int32_t sequence : sequences) {
        tokens.insert(tokens.end(), prompts[sequence].begin(),
                      prompts[sequence].end());
        cuSeqlens.push_back(int32_t(tokens.size()));
      }
      std::vector<float> logits(3 * modelWidth);
      ASSERT_EQ(prefill_session_prefill_batch(
                    run.session, tokens.data(), cuSeqlens.data(),
                    sequences.data(), 3, logits.data()),
                PREFILL_OK)
          << prefill_last_error();
      for (int i = 0; i < 3; ++i)
        EXPECT_EQ(
            std::vector<float>(logits.begin() + i * modelWidth,
                               logits.begin() + (i + 1) * modelWidth),
            expectedLogits(prompts[sequences[i]], EmulatedRun::weightSeed))
            << seed;
    }
}

TEST(EmulatedSession, CountsEveryLaunch) {
  EmulatedRun run(makeEmulatedModule({}));
  run.prefill(makeTokens(3));
  run.prefill(makeTokens(5)); // M_pad 16: the counters are this call's
  ASSERT_EQ(run.error, "");
  json counters = json::parse(run.counters());
  ASSERT_EQ(counters.size(), 3u);
  EXPECT_EQ(counters[0]["name"], "embed");
  EXPECT_EQ(counters[0]["layer"], -1);
  EXPECT_EQ(counters[0]["workgroups"], 16);
  EXPECT_EQ(counters[0]["global_store_bytes"], 16 * modelWidth * 4);
  EXPECT_EQ(counters[0]["distinct_store_sectors"], 16 * modelWidth * 4 / 32);
  EXPECT_EQ(counters[1]["kernel"], "append");
  EXPECT_EQ(counters[1]["layer"], 0);
  // Padded rows have no slot.
  EXPECT_EQ(counters[1]["global_store_bytes"], 5 * 2 * modelWidth * 4);
  const json &sites = counters[1]["sites"];
  auto stores = std::find_if(sites.begin(), sites.end(), [](const json &site) {
    return site["name"] == "kv_append.store_v";
  });
  ASSERT_NE(stores, sites.end());
  EXPECT_EQ((*stores)["kind"], "store");
  EXPECT_EQ((*stores)["requests"], 5);
  EXPECT_EQ((*stores)["global_bytes"], 5 * modelWidth * 4);
  EXPECT_FALSE(stores->contains("bank_conflicts")) << "zeros are left out";
}

TEST(EmulatedSession, CountOnlyCountsTheSame) {
  fb::ModuleT file = makeEmulatedModule({fb::KVLayout::paged_nhd});
  EmulatedRun full(file), counted(file, 1, {.countOnly = true});
  full.prefill(makeTokens(9));
  counted.prefill(makeTokens(9));
  ASSERT_EQ(full.error + counted.error, "");
  EXPECT_EQ(full.counters(), counted.counters());
}

// More threads than any machine has processors.
TEST(EmulatedSession, ManyHostThreads) {
  fb::ModuleT file = makeEmulatedModule({});
  std::vector<int32_t> tokens = makeTokens(23);
  EmulatedRun run(file, 1, {.threads = 512});
  EXPECT_EQ(run.prefill(tokens),
            expectedLogits(tokens, EmulatedRun::weightSeed));
  EXPECT_EQ(run.error, "");
}

TEST(EmulatedSession, CountOnlyNeedsNoMemory) {
  // 128 GiB of embeddings.
  EmulatedModelOptions options;
  options.vocab = int64_t(1) << 30;
  fb::ModuleT file = makeEmulatedModule(options);
  EmulatedRun full(file);
  EXPECT_THAT(full.error, HasSubstr("out of memory: class weights"));
  EmulatedRun counted(file, 1, {.countOnly = true});
  counted.prefill(makeTokens(4));
  ASSERT_EQ(counted.error, "");
  EXPECT_EQ(json::parse(counted.counters())[0]["global_store_bytes"],
            4 * modelWidth * 4);
}

TEST(EmulatedSession, CountOnlyIsRefusedWhereControlNeedsArithmetic) {
  EmulatedModelOptions options;
  options.fault = Fault::needsArithmetic;
  fb::ModuleT file = makeEmulatedModule(options);
  EmulatedRun full(file), counted(file, 1, {.countOnly = true});
  full.prefill(makeTokens(4));
  EXPECT_EQ(full.error, "");
  counted.prefill(makeTokens(4));
  EXPECT_THAT(
      counted.error,
      HasSubstr("launch 2, layer -1: emulated kernel 'logits' cannot be "
                "counted without arithmetic"));
}

TEST(EmulatedSession, AFindingIsAnErrorThatNamesThePlace) {
  EmulatedModelOptions options;
  options.fault = Fault::writesBehindBuffer;
  EmulatedRun run(makeEmulatedModule(options));
  run.prefill(makeTokens(4));
  EXPECT_THAT(run.error, HasSubstr("launch 0, layer -1: "));
  EXPECT_THAT(run.error, HasSubstr("embed"));
  EXPECT_THAT(run.error, HasSubstr("block 3"));
  EXPECT_THAT(run.error, HasSubstr("embed.store"));
  EXPECT_THAT(run.error, HasSubstr("'hidden' (512 bytes)"));
  EXPECT_EQ(run.error.find('\n'), std::string::npos);
  EXPECT_EQ(prefill_kv_cache_length(run.cache, 0), 0);
}

TEST(EmulatedSession, WeightsAreReadOnly) {
  EmulatedModelOptions options;
  options.fault = Fault::writesWeight;
  EmulatedRun run(makeEmulatedModule(options));
  run.prefill(makeTokens(1));
  EXPECT_THAT(run.error, HasSubstr("read-only"));
  EXPECT_THAT(run.error, HasSubstr("'embedding'"));
}

// What a launch says that it only reads; the kernel writes it.
TEST(EmulatedSession, ReadBuffersAndCachesAreReadOnly) {
  auto errorOf = [](uint32_t launch, fb::ArgKind kind) {
    fb::ModuleT file = makeEmulatedModule({});
    fb::LaunchT &table = *file.plans[0]->schedules[0]->launches[launch];
    for (uint32_t place = 0; place < table.args.size(); ++place)
      if (table.args[place].kind() == kind)
        table.read_only.push_back(place);
    EXPECT_FALSE(table.read_only.empty());
    EmulatedRun run(file);
    run.prefill(makeTokens(1));
    return run.error;
  };
  EXPECT_THAT(errorOf(0, fb::ArgKind::buffer),
              AllOf(HasSubstr("read-only"), HasSubstr("'hidden'")));
  EXPECT_EQ(errorOf(1, fb::ArgKind::buffer), "");
  EXPECT_THAT(errorOf(1, fb::ArgKind::kv_cache),
              AllOf(HasSubstr("read-only"), HasSubstr("'layer0.")));
  EXPECT_EQ(errorOf(2, fb::ArgKind::kv_cache), "");
}

TEST(EmulatedSession, ADeviceNeedsItsCode) {
  fb::ModuleT file = makeEmulatedModule({});
  EXPECT_EQ(EmulatedRun(file, 1, {.name = "cuda-emu:sm_90"}).error,
            "the module has no code for cuda-emu:sm_90, it has "
            "'cuda-emu:sm_80'");
  EXPECT_THAT(EmulatedRun(file, 1, {.name = "cpu"}).error,
              HasSubstr("no code for this CPU: it has 'cuda-emu:sm_80'"));
  file.plans[0]->code[0]->format = fb::CodeFormat::ptx;
  EXPECT_EQ(EmulatedRun(file).error,
            "the module has no code for cuda-emu:sm_80, it has 'cuda:sm_80 "
            "(ptx)'");
}

TEST(EmulatedSession, CodeAndPlanMustAgree) {
  auto errorOf = [](void (*damage)(fb::KernelT &)) {
    fb::ModuleT file = makeEmulatedModule({});
    damage(*file.plans[0]->kernels[1]);
    return EmulatedRun(file).error;
  };
  EXPECT_THAT(
      errorOf([](auto &k) { k.cuda->block_threads = 64; }),
      HasSubstr("code cuda-emu:sm_80: kernel 'append' has 32 threads in "
                "a block, but its plan says 64"));
  EXPECT_THAT(errorOf([](auto &k) { k.cuda->shared_bytes = 8; }),
              HasSubstr("has 0 bytes of shared memory, but its plan says 8"));
  EXPECT_THAT(errorOf([](auto &k) { k.name = "other"; }),
              HasSubstr("code cuda-emu:sm_80 does not define kernel 'other'"));
}

} // namespace
