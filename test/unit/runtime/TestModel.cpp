#include "TestModel.h"
#include "SafetensorsFile.h"

#include "prefill/checkpoint/RandomWeights.h"
#include "prefill/module/ModuleChecksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

using namespace prefill;
using namespace prefill::test;

namespace {

constexpr float ropeFrequency = 0.25f;

std::vector<uint8_t> testKernels() {
  std::ifstream file(PREFILL_TEST_KERNELS, std::ios::binary);
  EXPECT_TRUE(file) << PREFILL_TEST_KERNELS;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Adds to a module under construction and returns indices.
class Builder {
public:
  Builder(module::PlanT &plan, module::ScheduleT &schedule)
      : plan(plan), schedule(schedule) {}

  template <typename Source>
  uint32_t weight(const std::string &name, std::vector<int64_t> shape,
                  Source source, bool resident) {
    auto weight = std::make_unique<module::WeightT>();
    weight->name = name;
    weight->shape = std::move(shape);
    weight->dtype = module::DType::f32;
    weight->source.Set(std::move(source));
    weight->resident = resident;
    plan.weights.push_back(std::move(weight));
    return static_cast<uint32_t>(plan.weights.size() - 1);
  }

  uint32_t checkpointWeight(const std::string &name, std::vector<int64_t> shape,
                            bool resident) {
    module::CheckpointSourceT source;
    source.name = name;
    return weight(name, std::move(shape), source, resident);
  }

  uint32_t buffer(const std::string &name, module::RowDomain domain,
                  int64_t rowBytes, int64_t rowOffset) {
    auto buffer = std::make_unique<module::BufferT>();
    buffer->name = name;
    buffer->domain = domain;
    buffer->row_bytes = rowBytes;
    buffer->row_offset = rowOffset;
    buffer->dtype = module::DType::f32;
    schedule.buffers.push_back(std::move(buffer));
    return static_cast<uint32_t>(schedule.buffers.size() - 1);
  }

  uint32_t kernel(const std::string &name, module::Grid grid, int32_t words,
                  int64_t scratchBytes = 0) {
    auto kernel = std::make_unique<module::KernelT>();
    kernel->name = name;
    kernel->grid = std::make_unique<module::Grid>(grid);
    kernel->num_words = words;
    kernel->scratch_bytes = scratchBytes;
    plan.kernels.push_back(std::move(kernel));
    return static_cast<uint32_t>(plan.kernels.size() - 1);
  }

  void launch(uint32_t kernel, int32_t layer, std::vector<module::Arg> args) {
    auto launch = std::make_unique<module::LaunchT>();
    launch->kernel = kernel;
    launch->layer = layer;
    launch->args = std::move(args);
    schedule.launches.push_back(std::move(launch));
  }

private:
  module::PlanT &plan;
  module::ScheduleT &schedule;
};

/// See TestModelOptions::shortRows.
void addShortSchedule(module::PlanT &plan, int64_t maxRows) {
  auto added = std::make_unique<module::ScheduleT>(*plan.schedules.back());
  added->max_rows = maxRows;
  added->row_buckets = {8};
  std::reverse(added->buffers.begin(), added->buffers.end());
  auto last = static_cast<uint32_t>(added->buffers.size() - 1);
  added->logits_buffer = last - added->logits_buffer;
  for (auto &buffer : added->buffers)
    buffer->row_offset += 64;
  for (auto &launch : added->launches) {
    launch->name = "short";
    for (module::Arg &arg : launch->args)
      if (arg.kind() == module::ArgKind::buffer)
        arg = module::Arg(module::ArgKind::buffer, last - arg.index());
  }
  plan.schedules.insert(plan.schedules.end() - 1, std::move(added));
}

} // namespace

module::ModuleT prefill::test::makeTestModule(const TestModelOptions &options) {
  using module::Arg, module::ArgKind, module::Grid, module::RowDomain;
  bool paged = options.layout == module::KVLayout::paged_nhd;
  std::string suffix = paged ? "_4" : "_64";

  module::ModuleT file;
  file.format_version = 4;
  file.checksum = 1; // there, for serialize() to fill in
  file.model_type = "llama";
  file.producer = "test";
  file.dtype = module::DType::f32;
  file.vocab_size = testVocab;
  file.hidden_size = testHidden;
  file.num_layers = testLayers;
  file.num_q_heads = testQHeads;
  file.max_seq = testMaxSeq;
  file.flops_per_token = 1000;
  file.flops_per_logit_row = 100;
  file.attention_flops_per_pair = 10;
  file.attention_flops_per_logit_pair = 1;
  file.kv_cache = std::make_unique<module::KVCacheSpec>(
      options.layout, module::DType::f32, testKVHeads, testHeadDim, testHeadDim,
      paged ? 4 : testMaxSeq);
  file.plans.push_back(std::make_unique<module::PlanT>());
  module::PlanT &plan = *file.plans.front();
  plan.target = "cpu";
  plan.schedules.push_back(std::make_unique<module::ScheduleT>());
  module::ScheduleT &schedule = *plan.schedules.front();
  schedule.row_buckets = {1, 4, 16};

  Builder builder(plan, schedule);
  uint32_t embedding = builder.checkpointWeight("model.embed_tokens.weight",
                                                {testVocab, testHidden}, true);
  module::RopeTableSourceT rope;
  rope.inv_freq = {ropeFrequency};
  rope.max_position = testMaxSeq;
  uint32_t ropeTable = builder.weight("rope", {testMaxSeq, 2}, rope, true);
  std::vector<uint32_t> packed;
  for (int layer = 0; layer < testLayers; ++layer) {
    std::string prefix = "model.layers." + std::to_string(layer);
    uint32_t matrix = builder.checkpointWeight(prefix + ".linear.weight",
                                               {testHidden, testHidden}, false);
    uint32_t gain =
        builder.checkpointWeight(prefix + ".norm.weight", {testHidden}, false);
    module::ScaleColumnsSourceT scale;
    scale.input = matrix;
    scale.gain = gain;
    uint32_t scaled = builder.weight(prefix + ".scaled",
                                     {testHidden, testHidden}, scale, false);
    module::PackSourceT pack;
    pack.input = scaled;
    pack.panel_n = 8;
    pack.k_pack = 2;
    pack.group_n = testHidden;
    packed.push_back(builder.weight(prefix + ".packed",
                                    {testHidden / 8, testHidden / 2, 8, 2},
                                    pack, true));
  }

  uint32_t hidden =
      builder.buffer("hidden", RowDomain::tokens, testHidden * 4, 0);
  uint32_t attended = builder.buffer("attended", RowDomain::tokens,
                                     testHidden * 4, testHidden * 4);
  uint32_t logits =
      builder.buffer("logits", RowDomain::logits, testVocab * 4, 0);
  schedule.logits_buffer = logits;

  Grid rows(RowDomain::tokens, false, 4, 1);
  uint32_t embedKernel = builder.kernel("tk_embed", rows, 13);
  uint32_t appendKernel = builder.kernel("tk_append" + suffix, rows, 18);
  uint32_t attentionKernel =
      options.unfusedAttention
          ? builder.kernel("tk_attention_unfused",
                           Grid(RowDomain::tokens, true, 4, testQHeads), 20)
          : builder.kernel("tk_attention" + suffix,
                           Grid(RowDomain::tokens, true, 4, testQHeads), 18,
                           testMaxSeq * 4);
  uint32_t linearKernel = builder.kernel(options.linearKernel, rows, 14, 256);
  uint32_t logitsKernel =
      builder.kernel("tk_logits", Grid(RowDomain::logits, false, 4, 1), 14);

  Arg batch(ArgKind::batch, 0);
  builder.launch(
      embedKernel, -1,
      {batch, Arg(ArgKind::weight, embedding), Arg(ArgKind::buffer, hidden)});
  for (int layer = 0; layer < testLayers; ++layer) {
    Arg cache(ArgKind::kv_cache, layer);
    builder.launch(appendKernel, layer,
                   {batch, Arg(ArgKind::buffer, hidden),
                    Arg(ArgKind::weight, ropeTable), cache});
    std::vector<Arg> attention = {batch, Arg(ArgKind::buffer, hidden), cache,
                                  Arg(ArgKind::buffer, attended)};
    if (options.unfusedAttention)
      attention.push_back(Arg(ArgKind::score, testQHeads));
    builder.launch(attentionKernel, layer, attention);
    builder.launch(linearKernel, layer,
                   {batch, Arg(ArgKind::buffer, attended),
                    Arg(ArgKind::weight, packed[layer]),
                    Arg(ArgKind::buffer, hidden)});
  }
  builder.launch(logitsKernel, -1,
                 {batch, Arg(ArgKind::buffer, hidden),
                  Arg(ArgKind::weight, embedding),
                  Arg(ArgKind::buffer, logits)});

  if (options.shortRows)
    addShortSchedule(plan, options.shortRows);

  auto code = std::make_unique<module::CodeT>();
  code->format = module::CodeFormat::elf;
  code->variant = options.variant;
  code->object = testKernels();
  plan.code.push_back(std::move(code));
  return file;
}

std::vector<uint8_t> prefill::test::serialize(const module::ModuleT &file) {
  flatbuffers::FlatBufferBuilder builder;
  module::FinishModuleBuffer(builder, module::Module::Pack(builder, &file));
  if (file.checksum != 0)
    EXPECT_TRUE(
        module::sealModule(builder.GetBufferPointer(), builder.GetSize()));
  return {builder.GetBufferPointer(),
          builder.GetBufferPointer() + builder.GetSize()};
}

std::vector<float>
prefill::test::referenceLogits(const std::vector<int32_t> &tokens,
                               uint64_t seed) {
  using rt::RandomTensor;
  int64_t rows = static_cast<int64_t>(tokens.size());
  RandomTensor embedding(seed, "model.embed_tokens.weight",
                         {testVocab, testHidden});
  std::vector<double> x(rows * testHidden);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < testHidden; ++i)
      x[r * testHidden + i] = embedding[tokens[r] * testHidden + i];

  constexpr int64_t group = testQHeads / testKVHeads;
  for (int layer = 0; layer < testLayers; ++layer) {
    std::string prefix = "model.layers." + std::to_string(layer);
    RandomTensor matrix(seed, prefix + ".linear.weight",
                        {testHidden, testHidden});
    RandomTensor gain(seed, prefix + ".norm.weight", {testHidden});
    auto key = [&](int64_t t, int64_t h, int64_t d) {
      float angle = float(t) * ropeFrequency;
      return x[t * testHidden + h * testHeadDim + d] * std::cos(double(angle)) +
             std::sin(double(angle));
    };
    auto value = [&](int64_t t, int64_t h, int64_t d) {
      return x[t * testHidden + (testKVHeads + h) * testHeadDim + d];
    };
    std::vector<double> attended(rows * testHidden);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t head = 0; head < testQHeads; ++head) {
        std::vector<double> p(r + 1);
        double sum = 0;
        for (int64_t t = 0; t <= r; ++t) {
          double dot = 0;
          for (int64_t d = 0; d < testHeadDim; ++d)
            dot += x[r * testHidden + head * testHeadDim + d] *
                   key(t, head / group, d);
          sum += p[t] = std::exp(dot / std::sqrt(double(testHeadDim)));
        }
        for (int64_t t = 0; t <= r; ++t)
          for (int64_t d = 0; d < testHeadDim; ++d)
            attended[r * testHidden + head * testHeadDim + d] +=
                p[t] / sum * value(t, head / group, d);
      }
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t n = 0; n < testHidden; ++n)
        for (int64_t k = 0; k < testHidden; ++k)
          x[r * testHidden + n] += attended[r * testHidden + k] *
                                   matrix[n * testHidden + k] * gain[k];
  }

  std::vector<float> logits(rows * testVocab);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t n = 0; n < testVocab; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < testHidden; ++k)
        sum += x[r * testHidden + k] * embedding[n * testHidden + k];
      logits[r * testVocab + n] = static_cast<float>(sum);
    }
  return logits;
}

std::string prefill::test::checkpointFile(
    uint64_t seed, const std::function<void(std::vector<TestTensor> &)> &edit) {
  std::vector<TestTensor> tensors = {
      {"model.embed_tokens.weight", {testVocab, testHidden}, {}}};
  for (int layer = 0; layer < testLayers; ++layer) {
    std::string prefix = "model.layers." + std::to_string(layer);
    tensors.push_back(
        {prefix + ".linear.weight", {testHidden, testHidden}, {}});
    tensors.push_back({prefix + ".norm.weight", {testHidden}, {}});
  }
  for (TestTensor &tensor : tensors) {
    rt::RandomTensor random(seed, tensor.name, tensor.shape);
    int64_t count = 1;
    for (int64_t extent : tensor.shape)
      count *= extent;
    for (int64_t i = 0; i < count; ++i)
      tensor.values.push_back(random[i]);
  }
  if (edit)
    edit(tensors);
  std::string header = "{", data;
  for (const TestTensor &tensor : tensors) {
    std::string shape;
    for (int64_t extent : tensor.shape)
      shape += (shape.empty() ? "" : ",") + std::to_string(extent);
    size_t bytes = tensor.values.size() * sizeof(float);
    header += (header.size() > 1 ? ",\"" : "\"") + tensor.name +
              R"(":{"dtype":"F32","shape":[)" + shape +
              R"(],"data_offsets":[)" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + bytes) + "]}";
    data.append(reinterpret_cast<const char *>(tensor.values.data()), bytes);
  }
  return safetensorsFile(header + "}", data);
}

std::string prefill::test::checkpointConfig() {
  return R"({"model_type":"llama","vocab_size":13,"hidden_size":32,)"
         R"("num_hidden_layers":2,"num_attention_heads":4,)"
         R"("num_key_value_heads":2})";
}

TestRun::TestRun(const TestModelOptions &options, int threads,
                 int64_t sequences, int64_t capacity, uint64_t seed) {
  std::vector<uint8_t> file = serialize(makeTestModule(options));
  EXPECT_EQ(prefill_device_create("cpu:avx2", threads, &device), PREFILL_OK)
      << prefill_last_error();
  EXPECT_EQ(
      prefill_module_load_memory(device, file.data(), file.size(), &module),
      PREFILL_OK)
      << prefill_last_error();
  EXPECT_EQ(prefill_weights_random(module, seed, nullptr, nullptr, &weights),
            PREFILL_OK)
      << prefill_last_error();
  EXPECT_EQ(prefill_kv_cache_create(module, sequences, capacity, &cache),
            PREFILL_OK)
      << prefill_last_error();
  EXPECT_EQ(prefill_session_create(module, weights, cache, &session),
            PREFILL_OK)
      << prefill_last_error();
}

TestRun::~TestRun() {
  prefill_session_destroy(session);
  prefill_kv_cache_destroy(cache);
  prefill_weights_destroy(weights);
  prefill_module_destroy(module);
  prefill_device_destroy(device);
}

std::vector<float> TestRun::prefill(const std::vector<int32_t> &tokens,
                                    bool allLogits) {
  std::vector<float> logits((allLogits ? tokens.size() : 1) * testVocab);
  EXPECT_EQ(prefill_session_prefill(session, tokens.data(),
                                    static_cast<int64_t>(tokens.size()),
                                    allLogits, logits.data()),
            PREFILL_OK)
      << prefill_last_error();
  return logits;
}
