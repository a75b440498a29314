//===- WriteModule.cpp - the compiled module as a FlatBuffer
//----------------===//
#include "prefill/Target/Module/WriteModule.h"
#include "WeightProgram.h"
#include "prefill/module/ModuleChecksum.h"

using namespace mlir;
using namespace mlir::prefill;
namespace fb = ::prefill::module;

static constexpr int32_t kFormatVersion = 2;

namespace {

/// Words that an argument takes in a kernel's `args` (docs/architecture.md,
/// "Kernel ABI").
int32_t numWords(fb::ArgKind kind) {
  switch (kind) {
  case fb::ArgKind::batch:
    return 11;
  case fb::ArgKind::kv_cache:
    return 5;
  case fb::ArgKind::score:
    return 2;
  case fb::ArgKind::buffer:
  case fb::ArgKind::weight:
    return 1;
  }
  llvm_unreachable("unknown argument kind");
}

class ModuleWriter {
public:
  ModuleWriter(ModuleOp plan, ModuleOp tiled, ArrayRef<ModuleOp> kernels)
      : plan(plan), tiled(tiled), kernels(kernels), weights(plan) {}

  FailureOr<llvm::SmallVector<char, 0>> write(ArrayRef<ModuleCode> code);

private:
  LogicalResult readManifest(func::FuncOp entry);
  LogicalResult addLaunch(LaunchOp launch);
  FailureOr<uint32_t> addKernel(func::FuncOp tiledKernel);
  FailureOr<fb::Arg> argument(Value operand, LaunchOp launch);
  FailureOr<uint32_t> addBuffer(OpResult result, LaunchOp launch);
  void countFlops(func::FuncOp kernel);

  ModuleOp plan, tiled;
  ArrayRef<ModuleOp> kernels;
  WeightProgram weights;
  fb::ModuleT module;
  DenseMap<Value, uint32_t> buffers; // result of a launch -> buffer
  DenseMap<Value, uint32_t> caches;  // cache value -> layer's cache
  llvm::StringMap<uint32_t> kernelIndices;
};

LogicalResult ModuleWriter::readManifest(func::FuncOp entry) {
  auto model = plan->getAttrOfType<DictionaryAttr>("prefill.model");
  auto maxSeq = plan->getAttrOfType<IntegerAttr>("prefill.max_seq");
  if (!model || !maxSeq)
    return plan.emitError("module lacks prefill.model or prefill.max_seq (run "
                          "prefill-specialize-model)");
  auto number = [&](StringRef key) -> int64_t {
    auto attr = model.getAs<IntegerAttr>(key);
    return attr ? attr.getInt() : 0;
  };
  auto modelType = model.getAs<StringAttr>("model_type");
  module.format_version = kFormatVersion;
  module.model_type = modelType ? modelType.str() : "unknown";
  module.producer = "prefill-opt";
  module.vocab_size = number("vocab_size");
  module.hidden_size = number("hidden_size");
  module.num_q_heads = number("num_q_heads");
  module.sliding_window = number("sliding_window");
  module.max_seq = maxSeq.getInt();

  for (BlockArgument arg : entry.getArguments())
    if (isa<KVCacheType>(arg.getType()))
      caches.try_emplace(arg, caches.size());
  module.num_layers = caches.size();
  if (caches.empty())
    return entry.emitError("entry function has no kv_cache argument");
  Type cacheType =
      llvm::find_if(entry.getArgumentTypes(), llvm::IsaPred<KVCacheType>)[0];
  for (Type type : entry.getArgumentTypes())
    if (isa<KVCacheType>(type) && type != cacheType)
      return entry.emitError("layers have different KV caches, ")
             << cacheType << " and " << type;
  auto cache = cast<KVCacheType>(cacheType);
  FailureOr<fb::DType> dtype = dtypeOf(cache.getDtype(), entry.getLoc());
  if (failed(dtype))
    return failure();
  module.dtype = *dtype;
  static_assert(int(KVLayout::PagedNHD) == int(fb::KVLayout::paged_nhd));
  static_assert(int(KVLayout::PagedVNNI) == int(fb::KVLayout::paged_vnni));
  module.kv_cache = std::make_unique<fb::KVCacheSpec>(
      fb::KVLayout(cache.getLayout()), *dtype, cache.getNumKvHeads(),
      cache.getHeadDimQk(), cache.getHeadDimV(), cache.getBlockSize());
  module.attention_flops_per_pair =
      2 * int64_t(module.num_q_heads) *
      (cache.getHeadDimQk() + cache.getHeadDimV()) * module.num_layers;
  return success();
}

/// GEMM work for each row; attention is counted by visible pairs instead.
void ModuleWriter::countFlops(func::FuncOp kernel) {
  kernel.walk([&](GemmOp gemm) {
    int64_t n = cast<RankedTensorType>(
                    gemm.getEpilogue().front().getArgument(0).getType())
                    .getDimSize(1);
    int64_t k = cast<RankedTensorType>(gemm.getInput().getType()).getDimSize(1);
    std::optional<LoweringConfigAttr> config = gemm.getLoweringConfig();
    bool logits = config && config->getDomain() == RowDomain::Logits;
    (logits ? module.flops_per_logit_row : module.flops_per_token) += 2 * n * k;
  });
}

FailureOr<uint32_t> ModuleWriter::addKernel(func::FuncOp tiledKernel) {
  StringRef name = tiledKernel.getName();
  if (auto known = kernelIndices.find(name); known != kernelIndices.end())
    return known->second;
  auto kernel = std::make_unique<fb::KernelT>();
  kernel->name = name.str();
  GridAttr firstGrid;
  for (ModuleOp variant : kernels) {
    auto func = variant.lookupSymbol<func::FuncOp>(name);
    auto grid = func ? func->getAttrOfType<GridAttr>(kGridAttr) : GridAttr();
    auto scratch = func ? func->getAttrOfType<IntegerAttr>(kScratchBytesAttr)
                        : IntegerAttr();
    if (!grid || !scratch)
      return tiledKernel.emitError("kernel @") << name << " lacks " << kGridAttr
                                               << " or " << kScratchBytesAttr,
             failure();
    if (firstGrid && firstGrid != grid)
      return tiledKernel.emitError("kernel @")
                 << name << " has another grid in another ISA variant",
             failure();
    firstGrid = grid;
    kernel->grid = std::make_unique<fb::Grid>(
        fb::RowDomain(grid.getDomain()), grid.getPlusSequences(),
        grid.getBlock(), grid.getMultiplier());
    kernel->scratch_bytes = std::max(kernel->scratch_bytes, scratch.getInt());
  }
  uint32_t index = module.kernels.size();
  kernelIndices[name] = index;
  module.kernels.push_back(std::move(kernel));
  return index;
}

FailureOr<fb::Arg> ModuleWriter::argument(Value operand, LaunchOp launch) {
  if (isa<BatchType>(operand.getType()))
    return fb::Arg(fb::ArgKind::batch, 0);
  if (isa<KVCacheType>(operand.getType())) {
    auto known = caches.find(operand);
    if (known == caches.end())
      return launch.emitOpError("reads a kv_cache that no launch and no "
                                "argument of the entry function gives"),
             failure();
    return fb::Arg(fb::ArgKind::kv_cache, known->second);
  }
  if (auto weight = operand.getDefiningOp<GetWeightOp>()) {
    FailureOr<uint32_t> index =
        weights.add(weight.getName(), /*resident=*/true);
    if (failed(index))
      return failure();
    return fb::Arg(fb::ArgKind::weight, *index);
  }
  auto known = buffers.find(operand);
  if (known == buffers.end())
    return launch.emitOpError("reads ")
               << operand << ", which is no result of a launch",
           failure();
  return fb::Arg(fb::ArgKind::buffer, known->second);
}

FailureOr<uint32_t> ModuleWriter::addBuffer(OpResult result, LaunchOp launch) {
  unsigned number = result.getResultNumber();
  ArrayAttr placed = launch.getBuffersAttr();
  auto buffer = placed && number < placed.size()
                    ? dyn_cast<BufferAttr>(placed[number])
                    : BufferAttr();
  if (!buffer)
    return launch.emitOpError("result ")
               << number << " has no buffer (run prefill-plan-memory)",
           failure();
  auto type = cast<RankedTensorType>(result.getType());
  FailureOr<fb::DType> dtype = dtypeOf(type.getElementType(), launch.getLoc());
  if (failed(dtype))
    return failure();
  auto entry = std::make_unique<fb::BufferT>();
  auto name = launch->getAttrOfType<StringAttr>(kNameAttr);
  entry->name = (name ? name.str() : launch.getKernel().str()) + "." +
                std::to_string(number);
  if (auto layer = launch->getAttrOfType<IntegerAttr>(kLayerAttr))
    entry->name = "layer" + std::to_string(layer.getInt()) + "." + entry->name;
  entry->domain = fb::RowDomain(buffer.getDomain());
  entry->row_bytes = buffer.getRowBytes();
  entry->row_offset = buffer.getRowOffset();
  entry->dtype = *dtype;
  uint32_t index = module.buffers.size();
  module.buffers.push_back(std::move(entry));
  buffers[result] = index;
  return index;
}

LogicalResult ModuleWriter::addLaunch(LaunchOp launch) {
  auto kernel = tiled.lookupSymbol<func::FuncOp>(launch.getKernel());
  if (!kernel)
    return launch.emitOpError("names kernel @")
           << launch.getKernel() << ", which the tiled module lacks";
  FailureOr<uint32_t> kernelIndex = addKernel(kernel);
  if (failed(kernelIndex))
    return failure();
  fb::LaunchT entry;
  entry.kernel = *kernelIndex;
  if (auto layer = launch->getAttrOfType<IntegerAttr>(kLayerAttr))
    entry.layer = layer.getInt();

  if (auto name = launch->getAttrOfType<StringAttr>(kNameAttr))
    entry.name = name.str();

  std::optional<uint32_t> cache;
  for (Value operand : launch.getOperands()) {
    FailureOr<fb::Arg> arg = argument(operand, launch);
    if (failed(arg))
      return failure();
    if (arg->kind() == fb::ArgKind::kv_cache)
      cache = arg->index();
    entry.args.push_back(*arg);
  }
  // Results: a cache is the operand, written in place; a tensor is one more
  // argument. The tiled kernel tells where a score matrix stands among them.
  SmallVector<fb::Arg> outputs;
  for (OpResult result : launch.getResults()) {
    if (isa<KVCacheType>(result.getType())) {
      if (!cache)
        return launch.emitOpError("returns a kv_cache but takes none");
      caches[result] = *cache;
      continue;
    }
    FailureOr<uint32_t> buffer = addBuffer(result, launch);
    if (failed(buffer))
      return failure();
    outputs.push_back(fb::Arg(fb::ArgKind::buffer, *buffer));
  }
  unsigned next = 0;
  for (unsigned i = launch.getOperands().size(), e = kernel.getNumArguments();
       i < e; ++i) {
    if (kernel.getArgAttr(i, kScoreAttr))
      entry.args.push_back(fb::Arg(fb::ArgKind::score, module.num_q_heads));
    else if (next < outputs.size())
      entry.args.push_back(outputs[next++]);
    else
      return launch.emitOpError("kernel @")
             << launch.getKernel()
             << " has more arguments than the launch gives";
  }
  if (next != outputs.size())
    return launch.emitOpError("kernel @")
           << launch.getKernel()
           << " takes fewer outputs than the launch gives";

  int32_t words = 0;
  for (const fb::Arg &arg : entry.args)
    words += numWords(arg.kind());
  module.kernels[*kernelIndex]->num_words = words;
  if (auto planKernel = plan.lookupSymbol<func::FuncOp>(launch.getKernel()))
    countFlops(planKernel);
  module.launches.push_back(std::make_unique<fb::LaunchT>(std::move(entry)));
  return success();
}

FailureOr<llvm::SmallVector<char, 0>>
ModuleWriter::write(ArrayRef<ModuleCode> code) {
  auto entry = plan.lookupSymbol<func::FuncOp>(kEntryName);
  if (!entry)
    return plan.emitError("module has no function @") << kEntryName, failure();
  if (failed(readManifest(entry)))
    return failure();
  for (auto launch : entry.getOps<LaunchOp>())
    if (failed(addLaunch(launch)))
      return failure();
  Operation *terminator = entry.getBody().front().getTerminator();
  auto logits = buffers.find(terminator->getOperand(0));
  if (logits == buffers.end())
    return entry.emitError(
               "entry function does not return a launch's result as logits"),
           failure();
  module.logits_buffer = logits->second;

  WalkResult walk = plan.walk([&](GemmOp gemm) {
    std::optional<LoweringConfigAttr> config = gemm.getLoweringConfig();
    if (!config)
      return WalkResult(gemm.emitOpError("has no lowering_config"));
    std::vector<int32_t> buckets(config->getRowBuckets().begin(),
                                 config->getRowBuckets().end());
    if (!module.row_buckets.empty() && module.row_buckets != buckets)
      return WalkResult(gemm.emitOpError(
          "has other row_buckets than another kernel of the plan"));
    module.row_buckets = buckets;
    return WalkResult::advance();
  });
  if (walk.wasInterrupted())
    return failure();
  if (module.row_buckets.empty())
    module.row_buckets = {1};

  module.weights = weights.take();
  for (const ModuleCode &variant : code) {
    auto table = std::make_unique<fb::CodeT>();
    table->target = variant.target;
    table->variant = variant.variant;
    table->object.assign(variant.object.begin(), variant.object.end());
    module.code.push_back(std::move(table));
  }
  flatbuffers::FlatBufferBuilder builder;
  builder.ForceDefaults(false);
  module.checksum = 1; // a field that is 0 would not be stored
  fb::FinishModuleBuffer(builder, fb::Module::Pack(builder, &module));
  if (!fb::sealModule(builder.GetBufferPointer(), builder.GetSize()))
    return plan.emitError("the module file cannot be sealed: the FlatBuffers "
                          "verifier refuses it"),
           failure();
  const char *data = reinterpret_cast<const char *>(builder.GetBufferPointer());
  return llvm::SmallVector<char, 0>(data, data + builder.GetSize());
}

} // namespace

FailureOr<llvm::SmallVector<char, 0>>
mlir::prefill::writeModule(ModuleOp plan, ModuleOp tiled,
                           ArrayRef<ModuleOp> kernels,
                           ArrayRef<ModuleCode> code) {
  return ModuleWriter(plan, tiled, kernels).write(code);
}
