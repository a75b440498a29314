// Malformed .pfm files: refused with a message that names the place, never a
// crash.
#include "TestModel.h"

#include "core/KVCache.h"
#include "core/LoadedModule.h"
#include "core/ModuleFile.h"
#include "core/ResidentWeights.h"
#include "core/ScheduleChoice.h"
#include "core/Session.h"
#include "prefill/module/ModuleChecksum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

using namespace prefill;
using namespace prefill::test;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

/// The error of loading `bytes`, or "" when they load.
std::string loadError(const std::vector<uint8_t> &bytes,
                      const char *deviceName = "cpu") {
  prefill_device *device = nullptr;
  EXPECT_EQ(prefill_device_create(deviceName, 1, &device), PREFILL_OK)
      << prefill_last_error();
  prefill_module *module = nullptr;
  prefill_status status =
      prefill_module_load_memory(device, bytes.data(), bytes.size(), &module);
  std::string message = status == PREFILL_OK ? "" : prefill_last_error();
  prefill_module_destroy(module);
  prefill_device_destroy(device);
  return message;
}

std::string loadError(const module::ModuleT &file) {
  return loadError(serialize(file));
}

TEST(ModuleFile, LoadsFromUnalignedMemory) {
  std::vector<uint8_t> bytes = serialize(makeTestModule());
  bytes.insert(bytes.begin(), 0);
  prefill_device *device = nullptr;
  ASSERT_EQ(prefill_device_create("cpu", 1, &device), PREFILL_OK);
  prefill_module *module = nullptr;
  ASSERT_EQ(prefill_module_load_memory(device, bytes.data() + 1,
                                       bytes.size() - 1, &module),
            PREFILL_OK)
      << prefill_last_error();
  prefill_module_info info;
  ASSERT_EQ(prefill_module_get_info(module, &info), PREFILL_OK);
  EXPECT_STREQ(info.model_type, "llama");
  EXPECT_STREQ(info.dtype, "f32");
  EXPECT_STREQ(info.kv_layout, "contiguous");
  EXPECT_EQ(info.head_dim, testHeadDim);
  EXPECT_STREQ(prefill_module_variant(module), "avx2");
  prefill_launch_info launch;
  EXPECT_EQ(prefill_module_get_launch(module, 8, &launch),
            PREFILL_INVALID_ARGUMENT);
  prefill_module_destroy(module);
  prefill_device_destroy(device);
}

TEST(ModuleFile, PadsRowsToBuckets) {
  auto device = rt::Device::create("cpu", 1);
  ASSERT_TRUE(device);
  std::vector<uint8_t> bytes = serialize(makeTestModule());
  auto loaded =
      rt::LoadedModule::loadMemory(**device, bytes.data(), bytes.size());
  ASSERT_TRUE(loaded);
  for (auto [rows, padded] : {std::pair{1, 1},
                              {2, 4},
                              {4, 4},
                              {5, 16},
                              {16, 16},
                              {17, 32},
                              {32, 32},
                              {33, 48}})
    EXPECT_EQ(rt::padRows(rt::lastSchedule((*loaded)->plan()), rows), padded)
        << rows;
}

TEST(ModuleFileHostile, NotAModule) {
  EXPECT_THAT(loadError(std::vector<uint8_t>{1}),
              HasSubstr("not a compiled module: the file identifier PFM1"));
  EXPECT_THAT(loadError(std::vector<uint8_t>(100, 0)),
              HasSubstr("not a compiled module"));
}

TEST(ModuleFileHostile, Truncated) {
  std::vector<uint8_t> bytes = serialize(makeTestModule());
  for (size_t size : {size_t(8), size_t(12), size_t(100), bytes.size() / 2,
                      bytes.size() - 100})
    EXPECT_THAT(
        loadError(std::vector<uint8_t>(bytes.begin(), bytes.begin() + size)),
        HasSubstr("truncated or damaged"))
        << size;
}

TEST(ModuleFileHostile, OlderFormatsAreNamed) {
  // A table without what the format has had since.
  flatbuffers::FlatBufferBuilder builder;
  auto start = builder.StartTable();
  builder.AddElement<int32_t>(module::Module::VT_FORMAT_VERSION, 3, 0);
  builder.Finish(flatbuffers::Offset<module::Module>(builder.EndTable(start)),
                 module::ModuleIdentifier());
  const uint8_t *bytes = builder.GetBufferPointer();
  EXPECT_THAT(loadError({bytes, bytes + builder.GetSize()}),
              HasSubstr("format version 3, this runtime reads version 4"));
}

/// A change of the tables and what the message must say.
struct Damage {
  const char *name;
  void (*apply)(module::ModuleT &);
  const char *message;
};

template <typename T> T &as(module::WeightSourceUnion &source) {
  return *static_cast<T *>(source.value);
}

/// Appends a weight that a launch may use.
template <typename Source>
module::WeightT &addWeight(module::ModuleT &file, std::vector<int64_t> shape,
                           Source source,
                           module::DType dtype = module::DType::f32) {
  auto &weights = file.plans[0]->weights;
  auto weight = std::make_unique<module::WeightT>();
  weight->name = "w" + std::to_string(weights.size());
  weight->shape = std::move(shape);
  weight->dtype = dtype;
  weight->source.Set(std::move(source));
  weight->resident = true;
  weights.push_back(std::move(weight));
  return *weights.back();
}

constexpr uint32_t matrixWeight = 2, vectorWeight = 3; // [32, 32] and [32]
constexpr uint32_t firstAdded = 10;

module::WeightT &addQuantized(module::ModuleT &file,
                              uint32_t input = matrixWeight) {
  module::QuantizeSourceT source;
  source.input = input;
  return addWeight(file, {testHidden, testHidden}, source, module::DType::i8);
}

module::WeightT &addScales(module::ModuleT &file,
                           uint32_t input = matrixWeight) {
  module::QuantizeScaleSourceT source;
  source.input = input;
  return addWeight(file, {testHidden}, source);
}

module::WeightT &addPack(module::ModuleT &file, uint32_t input,
                         module::DType dtype) {
  module::PackSourceT source;
  source.input = input;
  source.panel_n = 32;
  source.k_pack = 4;
  source.group_n = testHidden;
  return addWeight(file, {1, testHidden / 4, 32, 4}, source, dtype);
}

const Damage damages[] = {
    {"FormatVersion", [](auto &m) { m.format_version = 1; },
     "format version 1, this runtime reads version 4"},
    {"NoChecksum", [](auto &m) { m.checksum = 0; },
     "the file is damaged: it has no checksum"},
    {"Dtype", [](auto &m) { m.dtype = module::DType::i32; }, "dtype is 3"},
    {"DtypeInt8", [](auto &m) { m.dtype = module::DType::i8; },
     "dtype is 5, expected f32, bf16 or f16"},
    {"DtypeUnknown", [](auto &m) { m.dtype = module::DType(77); },
     "dtype is 77"},
    {"VocabSize", [](auto &m) { m.vocab_size = 0; }, "vocab_size is 0"},
    {"VocabSizeNegative", [](auto &m) { m.vocab_size = -5; },
     "vocab_size is -5"},
    {"NumLayers", [](auto &m) { m.num_layers = 0; }, "num_layers is 0"},
    {"MaxSeq", [](auto &m) { m.max_seq = int64_t(1) << 40; }, "max_seq is"},
    {"Flops", [](auto &m) { m.flops_per_token = -1; }, "flops_per_token is -1"},
    {"LogitPairs", [](auto &m) { m.attention_flops_per_logit_pair = -1; },
     "attention_flops_per_logit_pair is -1"},
    {"KVLayout",
     [](auto &m) {
       *m.kv_cache = module::KVCacheSpec(module::KVLayout(9),
                                         module::DType::f32, 2, 8, 8, 64);
     },
     "kv_cache layout is 9"},
    {"KVBlockSize",
     [](auto &m) {
       *m.kv_cache = module::KVCacheSpec(module::KVLayout::contiguous,
                                         module::DType::f32, 2, 8, 8, 32);
     },
     "kv_cache block_size is 32, expected max_seq 64 for contiguous"},
    {"KVPagedBlockSize",
     [](auto &m) {
       *m.kv_cache = module::KVCacheSpec(module::KVLayout::paged_nhd,
                                         module::DType::f32, 2, 8, 8, 0);
     },
     "kv_cache block_size is 0, expected 1 to 65536 for paged_nhd"},
    {"KVPageSize",
     [](auto &m) {
       *m.kv_cache = module::KVCacheSpec(module::KVLayout::paged_vnni,
                                         module::DType::f32, 2, 8, 8, 16);
     },
     "kv_cache block_size is 16, expected 32 for paged_vnni"},
    {"KVPageType",
     [](auto &m) {
       *m.kv_cache = module::KVCacheSpec(module::KVLayout::paged_vnni,
                                         module::DType::f16, 2, 8, 8, 32);
     },
     "kv_cache dtype is 2, expected f32 or bf16 for paged_vnni"},
    {"KVInt8",
     [](auto &m) {
       *m.kv_cache = module::KVCacheSpec(module::KVLayout::contiguous,
                                         module::DType::i8, 2, 8, 8, 64);
     },
     "kv_cache dtype is 5, expected f32, bf16 or f16"},
    {"KVHeads",
     [](auto &m) {
       *m.kv_cache = module::KVCacheSpec(module::KVLayout::contiguous,
                                         module::DType::f32, 0, 8, 8, 64);
     },
     "kv_cache num_kv_heads is 0"},
    {"Multiprocessors", [](auto &m) { m.plans[0]->multiprocessors = 1; },
     "plan 0 for 'cpu': multiprocessors is 1, expected 0 to 0"},
    {"NoSchedule", [](auto &m) { m.plans[0]->schedules.clear(); },
     "the plan for 'cpu' has 0 schedules, expected 1 to 64"},
    {"LastScheduleIsLimited",
     [](auto &m) { m.plans[0]->schedules[0]->max_rows = 16; },
     "schedule 0: max_rows is 16, expected 0, any number, of the last "
     "schedule"},
    {"EarlySchedulesAreNot",
     [](auto &m) {
       m.plans[0]->schedules.push_back(
           std::make_unique<module::ScheduleT>(*m.plans[0]->schedules[0]));
     },
     "schedule 0: max_rows is 0, expected 1 to 2147483647"},
    {"SchedulesInOrder",
     [](auto &m) {
       auto &schedules = m.plans[0]->schedules;
       for (int64_t rows : {16, 16})
         schedules
             .insert(schedules.end() - 1,
                     std::make_unique<module::ScheduleT>(*schedules.back()))
             ->get()
             ->max_rows = rows;
     },
     "schedule 1: max_rows is 16, expected 17 to 2147483647"},
    {"KindsDifferBetweenSchedules",
     [](auto &m) {
       auto &schedules = m.plans[0]->schedules;
       schedules.insert(schedules.begin(), std::make_unique<module::ScheduleT>(
                                               *schedules.front()));
       schedules[0]->max_rows = 1;
       for (int launch : {1, 4})
         std::swap(schedules[1]->launches[launch]->args[1],
                   schedules[1]->launches[launch]->args[3]);
     },
     "schedule 1: launch 1, argument 1: kind kv_cache, but launch 1 of "
     "schedule 0 of the same kernel 1 'tk_append_64' passes buffer"},
    {"KernelTwice",
     [](auto &m) {
       m.plans[0]->kernels[1]->name = m.plans[0]->kernels[0]->name;
     },
     "kernel 1 'tk_embed': an earlier kernel has the same name"},
    {"BucketsEmpty",
     [](auto &m) { m.plans[0]->schedules[0]->row_buckets.clear(); },
     "row_buckets is empty"},
    {"BucketsOrder",
     [](auto &m) { m.plans[0]->schedules[0]->row_buckets = {4, 4}; },
     "row_buckets hold 4 after 4"},
    {"WeightRank", [](auto &m) { m.plans[0]->weights[0]->shape.clear(); },
     "weight 0 'model.embed_tokens.weight': rank 0"},
    {"WeightExtent", [](auto &m) { m.plans[0]->weights[0]->shape = {0, 32}; },
     "shape [0, 32]"},
    {"WeightOverflow",
     [](auto &m) {
       m.plans[0]->weights[0]->shape = {int64_t(1) << 40, int64_t(1) << 40};
     },
     "at most 2^42 elements"},
    {"WeightDtype",
     [](auto &m) { m.plans[0]->weights[0]->dtype = module::DType::i64; },
     "weight 0 'model.embed_tokens.weight': dtype is 4"},
    {"ScaleInputLater",
     [](auto &m) {
       as<module::ScaleColumnsSourceT>(m.plans[0]->weights[4]->source).input =
           4;
     },
     "input 4 is not an earlier weight"},
    {"ScaleShape", [](auto &m) { m.plans[0]->weights[3]->shape = {16}; },
     "scales the columns of [32, 32] by [16]"},
    {"PackShape",
     [](auto &m) { m.plans[0]->weights[5]->shape = {4, 16, 2, 8}; },
     "shape [4, 16, 2, 8], but the packing gives [4, 16, 8, 2]"},
    {"PackPanel",
     [](auto &m) {
       as<module::PackSourceT>(m.plans[0]->weights[5]->source).panel_n = 0;
     },
     "packs with panel_n 0"},
    {"PackRank",
     [](auto &m) {
       as<module::PackSourceT>(m.plans[0]->weights[5]->source).input = 3;
     },
     "packs [32], expected rank 2"},
    {"RopeTooShort",
     [](auto &m) {
       as<module::RopeTableSourceT>(m.plans[0]->weights[1]->source)
           .max_position = 63;
     },
     "rope table for 63 positions, but max_seq is 64"},
    {"RopeShape", [](auto &m) { m.plans[0]->weights[1]->shape = {64, 4}; },
     "shape [64, 4], but the rope table gives [64, 2]"},
    {"ConcatEmpty",
     [](auto &m) {
       m.plans[0]->weights[4]->source.Set(module::ConcatSourceT());
     },
     "concatenates 0 inputs"},
    {"ConcatShapes",
     [](auto &m) {
       module::ConcatSourceT concat;
       concat.inputs = {2, 1};
       m.plans[0]->weights[4]->source.Set(std::move(concat));
     },
     "concatenates [32, 32] and [64, 2]"},
    {"ConcatSum",
     [](auto &m) {
       module::ConcatSourceT concat;
       concat.inputs = {2, 0};
       m.plans[0]->weights[4]->source.Set(std::move(concat));
     },
     "shape [32, 32], but the concatenation gives [45, 32]"},
    {"InterleaveCount",
     [](auto &m) {
       module::InterleaveSourceT interleave;
       interleave.inputs = {2};
       m.plans[0]->weights[4]->source.Set(std::move(interleave));
     },
     "interleaves 1 inputs, expected 2"},
    {"InterleaveGranularity",
     [](auto &m) {
       module::InterleaveSourceT interleave;
       interleave.inputs = {2, 2};
       m.plans[0]->weights[4]->source.Set(std::move(interleave));
     },
     "interleaves in runs of 0"},
    {"CheckpointInt8",
     [](auto &m) { m.plans[0]->weights[0]->dtype = module::DType::i8; },
     "weight 0 'model.embed_tokens.weight': dtype is i8, but neither quantized "
     "nor packed"},
    {"QuantizedFloats",
     [](auto &m) { addQuantized(m).dtype = module::DType::bf16; },
     "weight 10 'w10': a quantized matrix has to be i8"},
    {"QuantizeShape", [](auto &m) { addQuantized(m).shape = {32, 16}; },
     "shape [32, 16], but the quantization gives [32, 32]"},
    {"QuantizeRank", [](auto &m) { addQuantized(m, vectorWeight); },
     "quantizes [32], expected rank 2"},
    {"QuantizeInputLater", [](auto &m) { addQuantized(m, firstAdded); },
     "input 10 is not an earlier weight"},
    {"QuantizeTwice",
     [](auto &m) {
       addQuantized(m);
       addQuantized(m, firstAdded);
     },
     "weight 11 'w11': input 10 has dtype i8, expected floats"},
    {"ScalesInt8", [](auto &m) { addScales(m).dtype = module::DType::i8; },
     "dtype is i8, but neither quantized nor packed"},
    {"ScalesDtype", [](auto &m) { addScales(m).dtype = module::DType::bf16; },
     "scales of a quantized matrix have to be f32"},
    {"ScalesShape", [](auto &m) { addScales(m).shape = {31}; },
     "shape [31], but the quantization gives [32]"},
    {"ScalesRank", [](auto &m) { addScales(m, vectorWeight); },
     "gives scales of [32], expected rank 2"},
    {"ScalesOfInt8",
     [](auto &m) {
       addQuantized(m);
       addScales(m, firstAdded);
     },
     "input 10 has dtype i8, expected floats"},
    {"ConcatOfInt8",
     [](auto &m) {
       addQuantized(m);
       module::ConcatSourceT concat;
       concat.inputs = {matrixWeight, firstAdded};
       addWeight(m, {64, 32}, concat);
     },
     "input 10 has dtype i8, expected floats"},
    {"InterleaveOfInt8",
     [](auto &m) {
       addQuantized(m);
       module::InterleaveSourceT interleave;
       interleave.inputs = {firstAdded, matrixWeight};
       interleave.granularity = 1;
       addWeight(m, {64, 32}, interleave);
     },
     "input 10 has dtype i8, expected floats"},
    {"ScaleColumnsOfInt8",
     [](auto &m) {
       addQuantized(m);
       module::ScaleColumnsSourceT scale;
       scale.input = firstAdded;
       scale.gain = vectorWeight;
       addWeight(m, {32, 32}, scale);
     },
     "input 10 has dtype i8, expected floats"},
    {"PackInt8AsFloats",
     [](auto &m) {
       addQuantized(m);
       addPack(m, firstAdded, module::DType::bf16);
     },
     "packs i8 as bf16, expected i8 from i8 and floats from floats"},
    {"PackFloatsAsInt8",
     [](auto &m) { m.plans[0]->weights[5]->dtype = module::DType::i8; },
     "packs f32 as i8, expected i8 from i8 and floats from floats"},
    {"LogitsInt8",
     [](auto &m) {
       m.plans[0]->schedules[0]->buffers[2]->dtype = module::DType::i8;
     },
     "logits buffer 2 'logits': expected f32 rows of vocab_size 13"},
    {"BufferDomain",
     [](auto &m) {
       m.plans[0]->schedules[0]->buffers[0]->domain = module::RowDomain(5);
     },
     "buffer 0 'hidden': unknown row domain 5"},
    {"BufferDtype",
     [](auto &m) {
       m.plans[0]->schedules[0]->buffers[0]->dtype = module::DType(-3);
     },
     "buffer 0 'hidden': unknown dtype -3"},
    {"BufferRowBytes",
     [](auto &m) { m.plans[0]->schedules[0]->buffers[0]->row_bytes = 0; },
     "row_bytes is 0"},
    {"BufferOffset",
     [](auto &m) { m.plans[0]->schedules[0]->buffers[0]->row_offset = -64; },
     "row_offset is -64"},
    {"BufferHuge",
     [](auto &m) {
       m.plans[0]->schedules[0]->buffers[0]->row_bytes = INT64_MAX;
     },
     "row_bytes is 9223372036854775807"},
    {"LogitsBuffer",
     [](auto &m) { m.plans[0]->schedules[0]->logits_buffer = 3; },
     "logits_buffer is 3, but only 3 buffers exist"},
    {"LogitsDomain",
     [](auto &m) { m.plans[0]->schedules[0]->logits_buffer = 0; },
     "logits buffer 0 'hidden': expected f32 rows of vocab_size 13"},
    {"KernelName", [](auto &m) { m.plans[0]->kernels[0]->name = ""; },
     "kernel 0 '' has no name"},
    {"KernelBlock",
     [](auto &m) {
       *m.plans[0]->kernels[0]->grid =
           module::Grid(module::RowDomain::tokens, false, 0, 1);
     },
     "kernel 0 'tk_embed': block is 0"},
    {"KernelMultiplier",
     [](auto &m) {
       *m.plans[0]->kernels[0]->grid =
           module::Grid(module::RowDomain::tokens, false, 4, INT64_MAX);
     },
     "multiplier is 9223372036854775807"},
    {"KernelMultiplierImplausible",
     [](auto &m) {
       *m.plans[0]->kernels[0]->grid = module::Grid(
           module::RowDomain::tokens, false, 4, (int64_t(1) << 20) + 1);
     },
     "multiplier is 1048577, expected 1 to 1048576"},
    {"KernelScratch",
     [](auto &m) { m.plans[0]->kernels[0]->scratch_bytes = int64_t(1) << 50; },
     "scratch_bytes is 1125899906842624"},
    {"KernelWords", [](auto &m) { m.plans[0]->kernels[0]->num_words = 12; },
     "launch 0 passes 13 words, but kernel 0 'tk_embed' takes 12"},
    {"KernelMissing",
     [](auto &m) { m.plans[0]->kernels[0]->name = "tk_nothing"; },
     "code cpu:avx2 does not define kernel 'tk_nothing'"},
    {"LaunchKernel",
     [](auto &m) { m.plans[0]->schedules[0]->launches[0]->kernel = 99; },
     "launch 0: kernel 99, but only 5 exist"},
    {"LaunchLayer",
     [](auto &m) { m.plans[0]->schedules[0]->launches[0]->layer = 2; },
     "launch 0: layer is 2, expected -1 to 1"},
    {"ArgBuffer",
     [](auto &m) {
       m.plans[0]->schedules[0]->launches[0]->args[2] =
           module::Arg(module::ArgKind::buffer, 3);
     },
     "launch 0, argument 2: buffer 3, but only 3 exist"},
    {"ArgWeight",
     [](auto &m) {
       m.plans[0]->schedules[0]->launches[0]->args[1] =
           module::Arg(module::ArgKind::weight, 100);
     },
     "launch 0, argument 1: weight 100, but only 10 exist"},
    {"ArgWeightNotResident",
     [](auto &m) {
       m.plans[0]->schedules[0]->launches[0]->args[1] =
           module::Arg(module::ArgKind::weight, 2);
     },
     "is not resident"},
    {"ArgLayer",
     [](auto &m) {
       m.plans[0]->schedules[0]->launches[1]->args[3] =
           module::Arg(module::ArgKind::kv_cache, 2);
     },
     "launch 1, argument 3: layer 2, but only 2 exist"},
    {"ArgScore",
     [](auto &m) {
       m.plans[0]->schedules[0]->launches[0]->args[1] =
           module::Arg(module::ArgKind::score, 0);
     },
     "score heads is 0"},
    {"ArgKind",
     [](auto &m) {
       m.plans[0]->schedules[0]->launches[0]->args[1] =
           module::Arg(module::ArgKind(12), 0);
     },
     "launch 0, argument 1: unknown kind 12"},
    {"ReadOnlyPlace",
     [](auto &m) { m.plans[0]->schedules[0]->launches[0]->read_only = {2, 3}; },
     "launch 0: read_only argument 3, but only 3 exist"},
    {"ReadOnlyKind",
     [](auto &m) { m.plans[0]->schedules[0]->launches[0]->read_only = {1}; },
     "launch 0: read_only argument 1 is a weight, expected a buffer or "
     "kv_cache"},
    {"ArgKindsDiffer",
     [](auto &m) {
       std::swap(m.plans[0]->schedules[0]->launches[4]->args[1],
                 m.plans[0]->schedules[0]->launches[4]->args[3]);
     },
     "launch 4, argument 1: kind kv_cache, but launch 1 of the same kernel 1 "
     "'tk_append_64' passes buffer"},
    {"ArgCountsDiffer",
     [](auto &m) {
       // As many words: a cache is five of them.
       m.plans[0]->schedules[0]->launches[4]->args.pop_back();
       for (int i = 0; i < 5; ++i)
         m.plans[0]->schedules[0]->launches[4]->args.push_back(
             module::Arg(module::ArgKind::buffer, 0));
     },
     "launch 4 has 8 arguments, but launch 1 of the same kernel 1 "
     "'tk_append_64' has 4"},
    {"CodeEmpty", [](auto &m) { m.plans[0]->code[0]->object.clear(); },
     "is empty"},
    {"CodeTruncated", [](auto &m) { m.plans[0]->code[0]->object.resize(2000); },
     "code cpu:avx2 is truncated"},
    {"CodeNoElf",
     [](auto &m) { m.plans[0]->code[0]->object.assign(1000, 'x'); },
     "code cpu:avx2 is not an ELF file"},
    {"CodeOtherMachine",
     [](auto &m) {
       m.plans[0]->code[0]->object[18] = 183; // aarch64
     },
     "code cpu:avx2 is not for x86-64"},
    {"CodeFormat",
     [](auto &m) { m.plans[0]->code[0]->format = module::CodeFormat(9); },
     "code 'cpu':'avx2': unknown format 9"},
    {"CodeOfAnotherTarget",
     [](auto &m) { m.plans[0]->code[0]->format = module::CodeFormat::ptx; },
     "code 'cpu':'avx2' (ptx): the format is not one for 'cpu'"},
    {"CodeTwice",
     [](auto &m) {
       auto &code = m.plans[0]->code;
       code.push_back(std::make_unique<module::CodeT>(*code[0]));
     },
     "code 'cpu':'avx2' (elf) appears twice"},
    {"NoPlan", [](auto &m) { m.plans.clear(); },
     "the module has 0 plans, expected 1 to 64"},
    {"PlanTarget", [](auto &m) { m.plans[0]->target = "vulkan"; },
     "plan 0 is for 'vulkan', expected cpu or cuda"},
    {"PlanChip", [](auto &m) { m.plans[0]->chip = "sm_80"; },
     "plan 0 for 'cpu': chip is 'sm_80', expected none"},
    {"PlanTwice",
     [](auto &m) {
       m.plans.push_back(std::make_unique<module::PlanT>(*m.plans[0]));
     },
     "plans 0 and 1 are both for 'cpu'"},
    {"CudaResourcesOfACpuKernel",
     [](auto &m) {
       m.plans[0]->kernels[2]->cuda =
           std::make_unique<module::CudaResourcesT>();
     },
     "kernel 2 'tk_attention_64' has CUDA resources, but the plan is for "
     "'cpu'"},
    {"CodeNone", [](auto &m) { m.plans[0]->code.clear(); }, "it has 'nothing'"},
    {"NewlineInName",
     [](auto &m) { m.plans[0]->kernels[0]->name = "two\nlines"; },
     "does not define kernel 'two\\x0alines'"},
};

class ModuleFileDamage : public testing::TestWithParam<Damage> {};
INSTANTIATE_TEST_SUITE_P(Tables, ModuleFileDamage, testing::ValuesIn(damages),
                         [](const auto &info) { return info.param.name; });

TEST_P(ModuleFileDamage, IsNamed) {
  module::ModuleT file = makeTestModule();
  GetParam().apply(file);
  EXPECT_THAT(loadError(file), HasSubstr(GetParam().message));
}

/// The test module with 8-bit integers wherever they may be.
module::ModuleT makeInt8Module() {
  module::ModuleT file = makeTestModule();
  addQuantized(file);
  addPack(file, firstAdded, module::DType::i8);
  addScales(file);
  module::ScheduleT &schedule = *file.plans[0]->schedules[0];
  auto buffer = std::make_unique<module::BufferT>();
  buffer->name = "integers";
  buffer->domain = module::RowDomain::tokens;
  buffer->row_bytes = testHidden;
  buffer->row_offset = 8 * testHidden;
  buffer->dtype = module::DType::i8;
  schedule.buffers.push_back(std::move(buffer));
  return file;
}

TEST(ModuleFile, WeightsAndBuffersMayBeInt8) {
  EXPECT_EQ(loadError(makeInt8Module()), "");
}

TEST(ModuleFileHostile, DeepWeightProgram) {
  module::ModuleT file = makeTestModule();
  auto wrap = [&](uint32_t input) {
    auto weight = std::make_unique<module::WeightT>();
    weight->name = "w" + std::to_string(file.plans[0]->weights.size());
    weight->shape = {testHidden};
    module::ConcatSourceT concat;
    concat.inputs = {input};
    weight->source.Set(std::move(concat));
    file.plans[0]->weights.push_back(std::move(weight));
    return static_cast<uint32_t>(file.plans[0]->weights.size() - 1);
  };
  uint32_t last = 3;
  for (int i = 0; i < 64; ++i)
    last = wrap(last);
  EXPECT_EQ(loadError(file), "");
  wrap(last);
  EXPECT_THAT(loadError(file),
              HasSubstr("more than 64 transforms on top of each other"));
}

TEST(ModuleFileHostile, ForcedVariantMustExist) {
  TestModelOptions options;
  options.variant = "avx512";
  EXPECT_THAT(loadError(serialize(makeTestModule(options)), "cpu:avx2"),
              HasSubstr("the module has no code for cpu:avx2, it has "
                        "'cpu:avx512'"));
}

TEST(ModuleFileHostile, UnknownVariantsAreForLaterRuntimes) {
  module::ModuleT file = makeTestModule();
  auto later = std::make_unique<module::CodeT>();
  later->variant = "avx10";
  later->object = {1, 2, 3};
  file.plans[0]->code.insert(file.plans[0]->code.begin(), std::move(later));
  EXPECT_EQ(loadError(file), "");
}

/// Two modules at a time, loaded and unloaded in turn: neither gets the other's
/// code.
TEST(ModuleFile, ModulesDoNotMixUpTheirCode) {
  std::vector<int32_t> tokens = {1, 2, 3};
  TestModelOptions otherOptions;
  otherOptions.layout = module::KVLayout::paged_nhd;
  for (int round = 0; round < 3; ++round) {
    TestRun first;
    {
      TestRun second(otherOptions);
      EXPECT_EQ(second.prefill(tokens), first.prefill(tokens));
    }
    TestRun third(otherOptions);
    EXPECT_EQ(third.prefill(tokens), TestRun().prefill(tokens));
  }
}

/// The error of verifying `bytes` alone, or "". The copy is exact and aligned:
/// the sanitizers see every read.
std::string verifyError(const std::vector<uint8_t> &bytes) {
  std::vector<uint64_t> aligned((bytes.size() + 7) / 8);
  std::memcpy(aligned.data(), bytes.data(), bytes.size());
  auto result = rt::verifyModule(
      reinterpret_cast<const std::byte *>(aligned.data()), bytes.size());
  return result ? "" : result.error().message;
}

TEST(ModuleFileHostile, TheChecksumSeesEveryChange) {
  std::vector<uint8_t> valid = serialize(makeTestModule());
  ASSERT_EQ(verifyError(valid), "");
  std::mt19937 random(5);
  std::vector<uint8_t> bytes = valid;
  int found = 0; // by nothing but the checksum
  for (int round = 0; round < 3000; ++round) {
    // Every second change lies in the tables, which are a small part.
    size_t range = round % 2 ? bytes.size() : 4096;
    size_t at =
        round % 4 == 0 ? bytes.size() - 1 - random() % range : random() % range;
    uint8_t change = 1 << random() % 8;
    bytes[at] ^= change;
    std::string error = verifyError(bytes);
    EXPECT_THAT(error, StartsWith("invalid module: ")) << at;
    found += error.find("the file is damaged: checksum 0x") != error.npos;
    bytes[at] ^= change;
  }
  EXPECT_GT(found, 1500);
  bytes.push_back(0);
  EXPECT_THAT(verifyError(bytes),
              testing::ContainsRegex("the file is damaged: checksum "
                                     "0x[0-9a-f]{16}, expected "
                                     "0x[0-9a-f]{16}$"));
}

TEST(ModuleFileHostile, OnlyModulesCanBeSealed) {
  std::vector<uint8_t> bytes = serialize(makeTestModule());
  EXPECT_TRUE(module::sealModule(bytes.data(), bytes.size()));
  EXPECT_EQ(verifyError(bytes), "");
  EXPECT_FALSE(module::sealModule(bytes.data(), bytes.size() / 2));
  module::ModuleT file = makeTestModule();
  file.checksum = 0;
  bytes = serialize(file);
  EXPECT_FALSE(module::sealModule(bytes.data(), bytes.size()));
}

// Byte flips in the tables, sealed again so that the checks behind the checksum
// are what is tested: refused or, where the flip means nothing, loaded. What
// loads gets weights and a cache as well, where they fit.
TEST(ModuleFileHostile, SurvivesSealedByteFlips) {
  // Not the object: only the checksum can tell damaged code.
  module::ModuleT file = makeInt8Module();
  std::vector<uint8_t> valid = serialize(file);
  auto object = std::search(valid.begin(), valid.end(),
                            file.plans[0]->code[0]->object.begin(),
                            file.plans[0]->code[0]->object.end());
  ASSERT_NE(object, valid.end());
  size_t objectBegin = object - valid.begin();
  size_t objectEnd = objectBegin + file.plans[0]->code[0]->object.size();

  auto device = rt::Device::create("cpu", 1);
  ASSERT_TRUE(device);
  std::mt19937 random(3);
  int sealed = 0, refused = 0, loaded = 0;
  std::vector<uint8_t> bytes;
  for (int round = 0; round < 6000; ++round) {
    bytes = valid;
    for (int flips = 1 + random() % 3; flips > 0; --flips) {
      size_t at = random() % (bytes.size() - (objectEnd - objectBegin));
      if (at >= objectBegin)
        at += objectEnd - objectBegin;
      bytes[at] ^= 1 << random() % 8;
    }
    // What the FlatBuffers verifier refuses cannot be sealed.
    sealed += module::sealModule(bytes.data(), bytes.size());
    if (std::string error = verifyError(bytes); !error.empty()) {
      EXPECT_THAT(error, StartsWith("invalid module: "));
      EXPECT_EQ(error.find('\n'), std::string::npos);
      ++refused;
      continue;
    }
    ++loaded;
    // A flip of its length or place changes the object after all, and the
    // dynamic linker trusts what it is given.
    const std::vector<uint8_t> &original = file.plans[0]->code[0]->object;
    bool sameCode = true;
    for (const module::Code *code :
         *module::GetModule(bytes.data())->plans()->Get(0)->code())
      sameCode &= std::equal(code->object()->begin(), code->object()->end(),
                             original.begin(), original.end());
    if (!sameCode)
      continue;
    // Every table is walked once more by what reads them later.
    auto whole =
        rt::LoadedModule::loadMemory(**device, bytes.data(), bytes.size());
    if (!whole)
      continue;
    uint64_t elements = 0; // a flip can make a valid model of many GB
    for (const module::Weight *weight : *(*whole)->plan().weights()) {
      uint64_t own = 1;
      for (int64_t extent : *weight->shape())
        own *= extent;
      elements += own;
    }
    if (elements > 1 << 20)
      continue;
    auto weights =
        rt::ResidentWeights::load(**whole, rt::RandomSource(1), nullptr);
    auto cache = rt::KVCache::create(**whole, 1, 1);
    if (!weights || !cache)
      continue;
    auto session = rt::Session::create(**whole, **weights, **cache);
    EXPECT_TRUE(session);
  }
  EXPECT_GT(sealed, 2000);
  EXPECT_GT(refused, 2000);
  EXPECT_GT(loaded, 100);
}

} // namespace
