// The golden models on the CUDA emulator: transformers' logits, and the same
// bits however a prompt is run. Every memory access and synchronisation of
// every kernel is checked on the way.
#include "WaysToRun.h"
#include "prefill/module_generated.h"
#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

using namespace prefill::test;
using nlohmann::json;

namespace {

constexpr const char *kDevice = "cuda-emu:sm_80";
// Of transformers' own run in the same dtype; test/golden/README.md says why.
constexpr double kHalfFactor = 2.0;

struct Variant {
  const char *model, *dtype, *layout = "contiguous";
};

void PrintTo(const Variant &variant, std::ostream *os) {
  *os << variant.model << " " << variant.dtype << " " << variant.layout;
}

std::string nameOf(const testing::TestParamInfo<Variant> &info) {
  std::string name = std::string(info.param.model) + "_" + info.param.dtype +
                     "_" + info.param.layout;
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  return name;
}

/// As it is compiled where nobody says anything: attention of short calls is
/// split.
class Emulated : public testing::TestWithParam<Variant> {
protected:
  explicit Emulated(bool deterministic = false)
      : model(GetParam().model, GetParam().dtype, GetParam().layout, kDevice,
              /*threads=*/2, /*emulationSeed=*/0, deterministic) {}

  CompiledModel model;
};

class EmulatedGolden : public Emulated {};

TEST_P(EmulatedGolden, LogitsAreTransformers) {
  for (int64_t length : {1, 2, 63, 64, 65, 127, 128, 129}) {
    Logits logits = model.run().prefill(model.tokens(length));
    double error = relativeError(logits, model.golden(length));
    EXPECT_LE(error, kHalfFactor * model.goldenError(GetParam().dtype, length))
        << length << " tokens";
  }
  // Short calls against many keys.
  for (int64_t piece : {1, 113}) {
    std::vector<int32_t> tokens = model.tokens(513);
    PromptRun run = model.run();
    run.prefill({tokens.begin(), tokens.end() - piece});
    Logits logits = run.prefill({tokens.end() - piece, tokens.end()});
    EXPECT_LE(relativeError(logits, model.golden(513)),
              kHalfFactor * model.goldenError(GetParam().dtype, 513))
        << "the last " << piece << " of 513 tokens";
  }
}

// Six where attention is split: the outputs of splits are combined.
TEST_P(EmulatedGolden, SixLaunchesALayerInShortCalls) {
  PromptRun run = model.run();
  run.prefill(model.tokens(5));
  EXPECT_EQ(prefill_session_kernels_per_layer(run.session.get()), 6);
  int64_t layers = model.info().num_layers;
  const char *names[] = {"qkv_proj", "attention",    "combine_splits",
                         "o_proj",   "gate_up_proj", "down_proj"};
  for (int64_t i = 0; i < 6 * layers; ++i) {
    prefill_launch_info launch{};
    check(prefill_session_get_launch(run.session.get(), i + 1, &launch),
          "launch");
    EXPECT_EQ(launch.layer, i / 6);
    EXPECT_STREQ(launch.name, names[i % 6]);
  }
}

// Lengths where the tiles of attention that this very model has end, which are
// no powers of two where a group is none. There are no goldens of those: the
// reference in f64 stands in, and where both are they agree.
TEST_P(EmulatedGolden, LengthsAroundItsTiles) {
  std::vector<Logits> reference = model.referenceRows(129);
  double allowed = 0;
  for (int64_t length : {1, 2, 63, 64, 65, 127, 128, 129}) {
    EXPECT_LE(relativeError(reference[length - 1], model.golden(length)), 2e-5);
    allowed = std::max(allowed, model.goldenError(GetParam().dtype, length));
  }
  std::set<int64_t> blocks = model.attentionBlocks(), lengths;
  ASSERT_FALSE(blocks.empty());
  for (int64_t block : blocks)
    for (int64_t length : {block - 1, block, block + 1, 2 * block + 1})
      if (length >= 1 && length <= 129)
        lengths.insert(length);
  for (int64_t length : lengths)
    EXPECT_LE(relativeError(model.run().prefill(model.tokens(length)),
                            reference[length - 1]),
              kHalfFactor * allowed)
        << length << " tokens";
}

TEST_P(EmulatedGolden, FiveLaunchesALayerAndNoOtherBetween) {
  std::vector<prefill_launch_info> launches = model.launches();
  int64_t layers = model.info().num_layers;
  EXPECT_EQ(model.info().kernels_per_layer, 5);
  ASSERT_EQ(int64_t(launches.size()), 5 * layers + 3);
  const char *names[] = {"qkv_proj", "attention", "o_proj", "gate_up_proj",
                         "down_proj"};
  EXPECT_STREQ(launches.front().name, "embed");
  for (int64_t i = 0; i < 5 * layers; ++i) {
    EXPECT_EQ(launches[i + 1].layer, i / 5);
    EXPECT_STREQ(launches[i + 1].name, names[i % 5]);
  }
  EXPECT_STREQ(launches[launches.size() - 2].name, "final_norm");
  EXPECT_STREQ(launches.back().name, "lm_head");
}

std::vector<char> bytesOf(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file),
          std::istreambuf_iterator<char>()};
}

// What a library may do in a kernel's place, and what kernels only read.
TEST_P(EmulatedGolden, LaunchesSayWhatTheyAre) {
  std::vector<char> bytes = bytesOf(model.file());
  const prefill::module::Plan &plan =
      *prefill::module::GetModule(bytes.data())->plans()->Get(0);
  for (const prefill::module::Schedule *schedule : *plan.schedules())
    for (const prefill::module::Launch *launch : *schedule->launches()) {
      std::string name = launch->name()->str();
      EXPECT_EQ(launch->product() != nullptr, name == "lm_head") << name;
      for (uint32_t i = 0; i < launch->args()->size(); ++i) {
        if (launch->args()->Get(i)->kind() !=
            prefill::module::ArgKind::kv_cache)
          continue;
        bool readOnly =
            std::find(launch->read_only()->begin(), launch->read_only()->end(),
                      i) != launch->read_only()->end();
        EXPECT_EQ(readOnly, name != "qkv_proj") << name;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Models, EmulatedGolden,
    testing::Values(
        Variant{"llama-bias", "bf16"}, Variant{"llama-f16", "f16"},
        Variant{"llama-gqa3", "bf16"}, Variant{"llama-mha", "bf16"},
        Variant{"llama-mqa", "bf16"}, Variant{"llama-rope-linear", "bf16"},
        Variant{"llama-rope-llama3", "bf16"}, Variant{"llama-sharded", "bf16"},
        Variant{"mistral", "bf16"}, Variant{"mistral-window", "bf16"},
        Variant{"qwen2", "bf16"}, Variant{"qwen3", "bf16"}),
    nameOf);

/// What has the same bits however a prompt is run: --deterministic.
class EmulatedWays : public Emulated {
protected:
  EmulatedWays() : Emulated(/*deterministic=*/true) {}
};

// The bits of a library depend on the number of rows.
TEST_P(EmulatedWays, NothingIsLeftToALibrary) {
  std::vector<char> bytes = bytesOf(model.file());
  const prefill::module::Plan &plan =
      *prefill::module::GetModule(bytes.data())->plans()->Get(0);
  for (const prefill::module::Schedule *schedule : *plan.schedules())
    for (const prefill::module::Launch *launch : *schedule->launches())
      EXPECT_EQ(launch->product(), nullptr) << launch->name()->str();
}

// Calls of each of these lengths have launches of their own, but for what the
// compiler found to be the same.
TEST_P(EmulatedWays, ScheduleOfACallDoesNotMatter) {
  const std::vector<int64_t> pieces = {1, 16, 17, 128, 129, 300};
  int64_t total = std::accumulate(pieces.begin(), pieces.end(), int64_t(0));
  std::vector<int32_t> tokens(total);
  for (int64_t i = 0; i < total; ++i)
    tokens[i] = int32_t((i * 7919 + 13) % model.info().vocab_size);
  PromptRun whole = model.run(), chunked = model.run();
  Logits expected = whole.prefill(tokens), logits;
  auto next = tokens.begin();
  for (int64_t piece : pieces) {
    logits = chunked.prefill({next, next + piece});
    next += piece;
  }
  EXPECT_EQ(logits, expected);
  const prefill_module_info &info = model.info();
  for (int64_t layer : {int64_t(0), info.num_layers - 1}) {
    std::vector<float> keys(total * info.num_kv_heads * info.head_dim),
        values = keys, chunkedKeys = keys, chunkedValues = keys;
    check(prefill_kv_cache_read(whole.cache.get(), layer, 0, keys.data(),
                                values.data()),
          "cache");
    check(prefill_kv_cache_read(chunked.cache.get(), layer, 0,
                                chunkedKeys.data(), chunkedValues.data()),
          "cache");
    EXPECT_EQ(chunkedKeys, keys) << "layer " << layer;
    EXPECT_EQ(chunkedValues, values) << "layer " << layer;
  }
}

TEST_P(EmulatedWays, ChunksAndDecodeGiveTheBitsOfOneCall) {
  std::vector<int32_t> tokens = model.tokens(129);
  PromptRun atOnce = model.run();
  Logits whole = atOnce.prefill(tokens);
  EXPECT_LE(relativeError(whole, model.golden(129)),
            kHalfFactor * model.goldenError(GetParam().dtype, 129));
  for (size_t piece : {128, 64, 17, 50}) {
    PromptRun run = model.run();
    EXPECT_EQ(inPieces(run, tokens, {piece}), whole) << "pieces of " << piece;
    EXPECT_EQ(run.stored(), atOnce.stored()) << "pieces of " << piece;
  }
  for (int64_t length : {2, 15, 16, 17, 33}) {
    std::vector<int32_t> prompt(tokens.begin(), tokens.begin() + length);
    EXPECT_EQ(inPieces(model, prompt, {1}), model.run().prefill(prompt))
        << length << " decode steps";
  }
}

TEST_P(EmulatedWays, PoisonDoesNotMatter) {
  expectPoisonDoesNotMatter(model, {1, 15, 17, 64, 65, 100}, 2);
}

TEST_P(EmulatedWays, ASequenceDoesNotSeeItsBatch) {
  expectSequencesDoNotSeeTheirBatch(model);
}

TEST_P(EmulatedWays, SeedsDoNotMatter) {
  std::vector<int32_t> tokens = model.tokens(65);
  Logits expected = model.run().prefill(tokens);
  for (uint64_t seed : {1, 2, 12345}) {
    CompiledModel other(GetParam().model, GetParam().dtype, GetParam().layout,
                        kDevice, 1, seed, /*deterministic=*/true);
    EXPECT_EQ(other.run().prefill(tokens), expected) << "seed " << seed;
  }
}

TEST_P(EmulatedWays, EveryRowOfLogitsIsItsPrompts) {
  expectRowsAreTheirPrompts(model, model.tokens(66),
                            {1, 7, 16, 31, 32, 63, 64, 65, 66});
}

/// Sums over the sites of that name.
uint64_t sumOf(const json &launch, const std::string &site,
               const std::string &counter) {
  uint64_t sum = 0;
  for (const json &entry : launch["sites"])
    if (entry["name"] == site)
      sum += entry.value(counter, uint64_t(0));
  return sum;
}

TEST_P(EmulatedWays, KeysAndValuesAreStoredOnce) {
  const prefill_module_info &info = model.info();
  for (int64_t length : {1, 17, 65}) {
    PromptRun run = model.run();
    run.prefill(model.tokens(length));
    const char *text = nullptr;
    check(prefill_session_counters(run.session.get(), &text), "counters");
    json launches = json::parse(text);
    int64_t counted = 0;
    for (const json &launch : launches) {
      if (launch["name"] != "qkv_proj")
        continue;
      ++counted;
      for (const char *site : {"kv_append.store_k", "kv_append.store_v"})
        EXPECT_EQ(sumOf(launch, site, "global_bytes"),
                  uint64_t(length * info.num_kv_heads * info.head_dim * 2))
            << site;
    }
    EXPECT_EQ(counted, info.num_layers);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, EmulatedWays,
    testing::Values(Variant{"llama-gqa3", "bf16", "contiguous"},
                    Variant{"llama-gqa3", "bf16", "head_major"},
                    Variant{"llama-gqa3", "bf16", "paged_nhd:16"},
                    Variant{"llama-f16", "f16", "paged_nhd:3"},
                    Variant{"llama-f16", "f16", "head_major"},
                    Variant{"mistral-window", "bf16", "contiguous"},
                    Variant{"mistral-window", "bf16", "paged_nhd:16"},
                    Variant{"qwen3", "bf16", "head_major"}),
    nameOf);

/// Attention over splits, where they have keys.
class EmulatedSplits : public Emulated {
protected:
  /// A prompt of 400 tokens, then a chunk and two decode steps.
  std::vector<Logits> continuation(const CompiledModel &compiled,
                                   bool poison = false) const {
    std::vector<int32_t> tokens = compiled.tokens(503);
    PromptRun run = compiled.run();
    if (poison) {
      check(prefill_session_set_poison(run.session.get(), 1), "poison");
      check(prefill_kv_cache_poison_unused(run.cache.get()), "poison cache");
    }
    run.prefill({tokens.begin(), tokens.begin() + 400});
    return {run.prefill({tokens.begin() + 400, tokens.begin() + 501}),
            run.decode(tokens[501]), run.decode(tokens[502])};
  }
  CompiledModel deterministic() const {
    return {GetParam().model,      GetParam().dtype, GetParam().layout, kDevice,
            /*threads=*/2,         /*seed=*/0,
            /*deterministic=*/true};
  }
  /// The largest of the calls' errors.
  double errorOf(const std::vector<Logits> &calls) const {
    std::vector<Logits> reference = model.referenceRows(503);
    double largest = 0;
    for (size_t i = 0; i < calls.size(); ++i)
      largest = std::max(largest, relativeError(calls[i], reference[500 + i]));
    return largest;
  }
};

// Splits round their probabilities to other maxima, not more of them.
TEST_P(EmulatedSplits, AreAsExactAsTheWhole) {
  std::vector<Logits> whole = continuation(deterministic()),
                      logits = continuation(model);
  EXPECT_LE(errorOf(logits), 1.5 * errorOf(whole));
  // They are different kernels; one split has all keys of a small window.
  if (model.info().sliding_window == 0)
    for (size_t i = 0; i < logits.size(); ++i)
      EXPECT_NE(logits[i], whole[i]) << "call " << i;
}

// A split without a key leaves its part of a buffer as it is.
TEST_P(EmulatedSplits, PoisonDoesNotMatter) {
  EXPECT_EQ(continuation(model, /*poison=*/true), continuation(model));
}

// They are combined in one order.
TEST_P(EmulatedSplits, SeedsDoNotMatter) {
  std::vector<Logits> expected = continuation(model);
  for (uint64_t seed : {1, 12345}) {
    CompiledModel other(GetParam().model, GetParam().dtype, GetParam().layout,
                        kDevice, 1, seed);
    EXPECT_EQ(continuation(other), expected) << "seed " << seed;
  }
}

// Decode steps of a batch on pasts of every length, and a short chunk. A batch
// has fewer splits than each of its sequences alone: what that moves is less
// than what rounding does to one of them.
TEST_P(EmulatedSplits, BatchesAgreeWithinTolerance) {
  double allowed = errorOf(continuation(deterministic()));
  BatchLogits logits = runBatch(model, {{300, 7, 450}, {1, 17, 1}});
  for (size_t i = 0; i < 3; ++i)
    EXPECT_LE(relativeError(logits.together[i], logits.alone[i]), allowed)
        << "sequence " << i;
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, EmulatedSplits,
    testing::Values(Variant{"llama-gqa3", "bf16", "paged_nhd:16"},
                    Variant{"llama-f16", "f16", "contiguous"},
                    Variant{"mistral-window", "bf16", "head_major"}),
    nameOf);

// The cache's layout changes where keys lie, and nothing else.
TEST(EmulatedLayouts, GiveTheSameBits) {
  CompiledModel contiguous("llama-gqa3", "bf16", "contiguous", kDevice);
  std::vector<int32_t> tokens = contiguous.tokens(129);
  Logits expected = contiguous.run().prefill(tokens);
  for (const char *layout :
       {"head_major", "paged_nhd:16", "paged_nhd:1", "paged_nhd:64"}) {
    CompiledModel other("llama-gqa3", "bf16", layout, kDevice);
    EXPECT_EQ(other.run().prefill(tokens), expected) << layout;
  }
}

// Between the short prompts and the long ones, where no tile ends either.
TEST(EmulatedLengths, From129To513) {
  for (const char *name : {"llama-mha", "mistral-window"}) {
    CompiledModel model(name, "bf16", "paged_nhd:16", kDevice);
    std::vector<Logits> reference = model.referenceRows(513);
    double allowed = 0;
    for (int64_t length : {1, 2, 63, 64, 65, 127, 128, 129, 513})
      allowed = std::max(allowed, model.goldenError("bf16", length));
    EXPECT_LE(relativeError(reference[512], model.golden(513)), 2e-5);
    for (int64_t length = 129; length <= 513; length += 24)
      EXPECT_LE(relativeError(model.run().prefill(model.tokens(length)),
                              reference[length - 1]),
                kHalfFactor * allowed)
          << name << ", " << length << " tokens";
  }
}

TEST(EmulatedChips, GiveTheGoldenLogits) {
  for (const char *device :
       {"cuda-emu:sm_86", "cuda-emu:sm_89", "cuda-emu:sm_90"}) {
    CompiledModel model("llama-gqa3", "bf16", "paged_nhd:16", device);
    for (int64_t length : {1, 65, 129})
      EXPECT_LE(relativeError(model.run().prefill(model.tokens(length)),
                              model.golden(length)),
                kHalfFactor * model.goldenError("bf16", length))
          << device << ", " << length << " tokens";
  }
}

} // namespace
