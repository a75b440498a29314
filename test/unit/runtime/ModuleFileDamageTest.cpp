// Changes of a .pfm file's tables: each is refused with a message that names
// the place.
#include "ModuleFileCase.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace prefill;
using namespace prefill::test;
using testing::HasSubstr;

namespace {

/// A change of the tables and what the message must say.
struct Damage {
  const char *name;
  void (*apply)(module::ModuleT &);
  const char *message;
};

template <typename T> T &as(module::WeightSourceUnion &source) {
  return *static_cast<T *>(source.value);
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
    {"LogitsNarrow",
     [](auto &m) { m.plans[0]->schedules[0]->buffers[2]->row_bytes -= 1; },
     "logits buffer 2 'logits': expected rows of at least 13 f32 (vocab_size)"},
    {"LogitsInt8",
     [](auto &m) {
       m.plans[0]->schedules[0]->buffers[2]->dtype = module::DType::i8;
     },
     "logits buffer 2 'logits': expected rows of at least 13 f32 (vocab_size)"},
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
     "logits buffer 0 'hidden': expected rows of at least 13 f32 (vocab_size)"},
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

} // namespace
