//===- EmulatedModel.cpp - a tiny model with hand-written CUDA kernels ----===//
#include "EmulatedModel.h"
#include "../emulation/KernelText.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "prefill/Target/Emulation/CompileEmulation.h"
#include "prefill/checkpoint/RandomWeights.h"
#include "prefill/module/ModuleChecksum.h"
#include "gtest/gtest.h"

using namespace prefill_test;
namespace fb = prefill::module;

namespace {

/// Places of the batch's words among a kernel's parameters.
enum BatchWord {
  tokens = 3,
  slots = 5,
  kvLens = 7,
  blockTable = 8,
  stride = 9
};
const std::string batchWords = "iiippppppip", cacheWords = "ppiii";
constexpr int firstAfterBatch = 11;

int64_t blockSize(fb::KVLayout layout) {
  return layout == fb::KVLayout::paged_nhd ? 4 : modelMaxSeq;
}

V element(KernelText &k, V base, V index, int bytes) {
  return k.at(base, k.mul(index, bytes));
}

/// Where a thread's feature of token `offset` of a block lies, in elements.
V cacheIndex(KernelText &k, int cache, V block, V offset) {
  V head = k.divide(k.tid, modelHeadDim),
    feature = k.modulo(k.tid, modelHeadDim);
  V index =
      k.add(k.mul(block, k.arg(cache + 2)), k.mul(offset, k.arg(cache + 3)));
  return k.add(k.add(index, k.mul(head, k.arg(cache + 4))), feature);
}

std::string embedKernel(Fault fault) {
  KernelText k("embed", batchWords + "pp", 32, 0);
  V table = k.arg(firstAfterBatch), out = k.arg(firstAfterBatch + 1);
  V token = k.sext(
      k.load(element(k, k.arg(tokens), k.block, 4), "i32", "embed.load_token"));
  V from = k.add(k.mul(token, modelWidth), k.tid);
  V value = k.load(element(k, table, from, 4), "f32", "embed.load");
  V row = fault == Fault::writesBehindBuffer ? k.add(k.block, 1) : k.block;
  V to = k.add(k.mul(row, modelWidth), k.tid);
  k.store(value, element(k, fault == Fault::writesWeight ? table : out, to, 4),
          "embed.store");
  return k.text();
}

std::string appendKernel(fb::KVLayout layout) {
  KernelText k("append", batchWords + "p" + cacheWords, 32, 0);
  int cache = firstAfterBatch + 1;
  V slot =
      k.load(element(k, k.arg(slots), k.block, 8), "i64", "append.load_slot");
  k.ifThen(k.less(k.c(-1), slot), [&] {
    V from = k.add(k.mul(k.block, modelWidth), k.tid);
    V value = k.load(element(k, k.arg(firstAfterBatch), from, 4), "f32",
                     "append.load");
    V index = cacheIndex(k, cache, k.divide(slot, blockSize(layout)),
                         k.modulo(slot, blockSize(layout)));
    k.store(value, element(k, k.arg(cache), index, 4), "kv_append.store_k");
    k.store(k.binary("fadd", value, value),
            element(k, k.arg(cache + 1), index, 4), "kv_append.store_v");
  });
  return k.text();
}

std::string logitsKernel(fb::KVLayout layout, Fault fault) {
  KernelText k("logits", batchWords + cacheWords + "p", 32, 0);
  int cache = firstAfterBatch;
  k.ifThen(k.less(k.block, k.arg(1)), [&] {
    V length = k.sext(
        k.load(element(k, k.arg(kvLens), k.block, 4), "i32", "load_len"));
    std::vector<V> sum =
        k.loop(length, {k.f("0.0")}, [&](V i, std::vector<V> carried) {
          V entry = k.add(k.mul(k.block, k.arg(stride)),
                          k.divide(i, blockSize(layout)));
          V block = k.sext(k.load(element(k, k.arg(blockTable), entry, 4),
                                  "i32", "logits.load_block"));
          V index = cacheIndex(k, cache, block, k.modulo(i, blockSize(layout)));
          V key = k.load(element(k, k.arg(cache), index, 4), "f32",
                         "logits.load_k");
          return std::vector<V>{k.binary("fadd", carried[0], key)};
        });
    if (fault == Fault::needsArithmetic) {
      V zero = k.c(0, "i32");
      std::vector<V> a(4, zero), b(2, zero), c(4, k.f("0.0"));
      V product = k.mma("bf16", a, b, c, "logits.mma")[0];
      k.ifThen(k.compare("eq", k.bitcast(product, "i32"), zero),
               [&] { k.syncWarp("logits.sync"); });
    }
    V to = k.add(k.mul(k.block, modelWidth), k.tid);
    k.store(sum[0], element(k, k.arg(cache + 5), to, 4), "logits.store");
  });
  return k.text();
}

std::vector<uint8_t> compile(const std::string &text) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::registerAllToLLVMIRTranslations(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  EXPECT_TRUE(module) << text;
  if (!module)
    return {};
  auto image = mlir::prefill::compileEmulation(*module);
  EXPECT_TRUE(mlir::succeeded(image));
  if (mlir::failed(image))
    return {};
  return {image->begin(), image->end()};
}

std::unique_ptr<fb::KernelT> makeKernel(const char *name, fb::RowDomain domain,
                                        int32_t words) {
  auto kernel = std::make_unique<fb::KernelT>();
  kernel->name = name;
  kernel->grid = std::make_unique<fb::Grid>(domain, false, 1, 1);
  kernel->num_words = words;
  kernel->cuda = std::make_unique<fb::CudaResourcesT>();
  kernel->cuda->block_threads = 32;
  return kernel;
}

std::unique_ptr<fb::BufferT> makeBuffer(const char *name,
                                        fb::RowDomain domain) {
  auto buffer = std::make_unique<fb::BufferT>();
  buffer->name = name;
  buffer->domain = domain;
  buffer->row_bytes = modelWidth * 4;
  buffer->dtype = fb::DType::f32;
  return buffer;
}

std::unique_ptr<fb::LaunchT> makeLaunch(uint32_t kernel, int32_t layer,
                                        std::vector<fb::Arg> args) {
  auto launch = std::make_unique<fb::LaunchT>();
  launch->kernel = kernel;
  launch->layer = layer;
  launch->args = std::move(args);
  return launch;
}

} // namespace

std::string prefill_test::kernelText(const EmulatedModelOptions &options) {
  return KernelText::module({embedKernel(options.fault),
                             appendKernel(options.layout),
                             logitsKernel(options.layout, options.fault)});
}

fb::ModuleT
prefill_test::makeEmulatedModule(const EmulatedModelOptions &options) {
  fb::ModuleT file;
  file.format_version = 4;
  file.checksum = 1; // there, for serialize() to fill in
  file.model_type = "llama";
  file.dtype = fb::DType::f32;
  file.vocab_size = modelWidth; // of the logits
  file.hidden_size = modelWidth;
  file.num_layers = 1;
  file.num_q_heads = modelHeads;
  file.max_seq = modelMaxSeq;
  file.kv_cache = std::make_unique<fb::KVCacheSpec>(
      options.layout, fb::DType::f32, modelHeads, modelHeadDim, modelHeadDim,
      blockSize(options.layout));

  auto plan = std::make_unique<fb::PlanT>();
  plan->target = "cuda";
  plan->chip = "sm_80";
  plan->schedules.push_back(std::make_unique<fb::ScheduleT>());
  fb::ScheduleT &schedule = *plan->schedules.front();
  schedule.row_buckets = {4, 16};
  auto weight = std::make_unique<fb::WeightT>();
  weight->name = "embedding";
  weight->shape = {std::max(options.vocab, modelWidth), modelWidth};
  weight->dtype = fb::DType::f32;
  fb::CheckpointSourceT source;
  source.name = "embedding";
  weight->source.Set(source);
  weight->resident = true;
  plan->weights.push_back(std::move(weight));
  schedule.buffers.push_back(makeBuffer("hidden", fb::RowDomain::tokens));
  schedule.buffers.push_back(makeBuffer("logits", fb::RowDomain::logits));
  schedule.logits_buffer = 1;
  plan->kernels.push_back(makeKernel("embed", fb::RowDomain::tokens, 13));
  plan->kernels.push_back(makeKernel("append", fb::RowDomain::tokens, 17));
  plan->kernels.push_back(makeKernel("logits", fb::RowDomain::logits, 17));
  fb::Arg batch(fb::ArgKind::batch, 0), hidden(fb::ArgKind::buffer, 0),
      cache(fb::ArgKind::kv_cache, 0);
  schedule.launches.push_back(
      makeLaunch(0, -1, {batch, fb::Arg(fb::ArgKind::weight, 0), hidden}));
  schedule.launches.push_back(makeLaunch(1, 0, {batch, hidden, cache}));
  schedule.launches.push_back(
      makeLaunch(2, -1, {batch, cache, fb::Arg(fb::ArgKind::buffer, 1)}));
  auto code = std::make_unique<fb::CodeT>();
  code->format = fb::CodeFormat::emulation;
  code->variant = "sm_80";
  code->object = compile(kernelText(options));
  plan->code.push_back(std::move(code));
  file.plans.push_back(std::move(plan));
  return file;
}

std::vector<uint8_t> prefill_test::serialize(const fb::ModuleT &file) {
  flatbuffers::FlatBufferBuilder builder;
  fb::FinishModuleBuffer(builder, fb::Module::Pack(builder, &file));
  EXPECT_TRUE(fb::sealModule(builder.GetBufferPointer(), builder.GetSize()));
  return {builder.GetBufferPointer(),
          builder.GetBufferPointer() + builder.GetSize()};
}

std::vector<float>
prefill_test::expectedLogits(const std::vector<int32_t> &tokens,
                             uint64_t seed) {
  prefill::rt::RandomTensor embedding(seed, "embedding",
                                      {modelWidth, modelWidth});
  std::vector<float> sums(modelWidth);
  for (int32_t token : tokens)
    for (int64_t i = 0; i < modelWidth; ++i)
      sums[i] += embedding[token * modelWidth + i];
  return sums;
}

bool EmulatedRun::good(prefill_status status) {
  if (status != PREFILL_OK && error.empty())
    error = prefill_last_error();
  return status == PREFILL_OK;
}

EmulatedRun::EmulatedRun(const fb::ModuleT &file, int64_t sequences)
    : EmulatedRun(file, sequences, Device()) {}

EmulatedRun::EmulatedRun(const fb::ModuleT &file, int64_t sequences,
                         const Device &on) {
  std::vector<uint8_t> bytes = serialize(file);
  if (!good(prefill_device_create(on.name.c_str(), on.threads, &device)))
    return;
  if ((on.seed || on.countOnly) &&
      !good(prefill_device_set_emulation(device, on.seed, on.countOnly)))
    return;
  if (!good(prefill_module_load_memory(device, bytes.data(), bytes.size(),
                                       &module)) ||
      !good(prefill_weights_random(module, weightSeed, nullptr, nullptr,
                                   &weights)) ||
      !good(prefill_kv_cache_create(module, sequences, 0, &cache)))
    return;
  good(prefill_session_create(module, weights, cache, &session));
}

EmulatedRun::~EmulatedRun() {
  prefill_session_destroy(session);
  prefill_kv_cache_destroy(cache);
  prefill_weights_destroy(weights);
  prefill_module_destroy(module);
  prefill_device_destroy(device);
}

std::vector<float> EmulatedRun::prefill(const std::vector<int32_t> &tokens) {
  std::vector<float> logits(modelWidth);
  if (session)
    good(prefill_session_prefill(session, tokens.data(), tokens.size(), 0,
                                 logits.data()));
  return logits;
}

std::string EmulatedRun::counters() {
  const char *json = "";
  good(prefill_session_counters(session, &json));
  return json;
}
