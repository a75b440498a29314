//===- WriteModule.cpp - the compiled module as a FlatBuffer
//----------------===//
#include "prefill/Target/Module/WriteModule.h"
#include "WeightProgram.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "prefill/Codegen/CUDA/LaunchAttributes.h"
#include "prefill/module/ModuleChecksum.h"

using namespace mlir;
using namespace mlir::prefill;
namespace fb = ::prefill::module;

static constexpr int32_t kFormatVersion = 4;

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

/// Writes a plan, and what a module says about the model.
class PlanWriter {
public:
  explicit PlanWriter(const ModulePlan &input)
      : input(input), weights(input.schedules.front().config) {}

  LogicalResult write();

  fb::ModuleT model; ///< without plans
  std::unique_ptr<fb::PlanT> table = std::make_unique<fb::PlanT>();

private:
  friend class ScheduleWriter;
  bool isCuda() const { return input.target == "cuda"; }
  /// A library's algorithm, and with it a row's bits, depends on how many rows
  /// are multiplied at once.
  bool mayUseLibraries() const { return isCuda() && !input.deterministic; }
  LogicalResult readManifest(ModuleOp plan);
  LogicalResult compareWeights(ModuleOp other);
  FailureOr<uint32_t> addKernel(func::FuncOp tiledKernel);
  LogicalResult readKernel(Operation *kernel, GridAttr &grid,
                           fb::KernelT &entry);
  LogicalResult readCudaKernel(FunctionOpInterface kernel, fb::KernelT &entry);

  const ModulePlan &input;
  WeightProgram weights; ///< of every schedule
  llvm::StringMap<uint32_t> kernelIndices;
};

/// Writes the launches of a schedule, their buffers and the kernels that they
/// are the first to name.
class ScheduleWriter {
public:
  ScheduleWriter(PlanWriter &writer, const ModuleSchedule &schedule)
      : writer(writer), plan(schedule.config) {
    table->max_rows = schedule.maxRows;
  }

  LogicalResult write();

  std::unique_ptr<fb::ScheduleT> table = std::make_unique<fb::ScheduleT>();

private:
  LogicalResult addLaunch(LaunchOp launch);
  FailureOr<fb::Arg> argument(Value operand, LaunchOp launch);
  FailureOr<uint32_t> addBuffer(OpResult result, LaunchOp launch);
  LogicalResult findBuckets();
  void countFlops(func::FuncOp kernel);

  PlanWriter &writer;
  ModuleOp plan;
  DenseMap<Value, uint32_t> buffers; // result of a launch -> buffer
  DenseMap<Value, uint32_t> caches;  // cache value -> layer's cache
};

static func::FuncOp entryOf(ModuleOp plan) {
  auto entry = plan.lookupSymbol<func::FuncOp>(kEntryName);
  if (!entry)
    plan.emitError("module has no function @") << kEntryName;
  return entry;
}

LogicalResult PlanWriter::readManifest(ModuleOp plan) {
  func::FuncOp entry = entryOf(plan);
  if (!entry)
    return failure();
  auto attributes = plan->getAttrOfType<DictionaryAttr>("prefill.model");
  auto maxSeq = plan->getAttrOfType<IntegerAttr>("prefill.max_seq");
  if (!attributes || !maxSeq)
    return plan.emitError("module lacks prefill.model or prefill.max_seq (run "
                          "prefill-specialize-model)");
  auto number = [&](StringRef key) -> int64_t {
    auto attr = attributes.getAs<IntegerAttr>(key);
    return attr ? attr.getInt() : 0;
  };
  auto modelType = attributes.getAs<StringAttr>("model_type");
  model.format_version = kFormatVersion;
  model.model_type = modelType ? modelType.str() : "unknown";
  model.producer = "prefill-opt";
  model.vocab_size = number("vocab_size");
  model.hidden_size = number("hidden_size");
  model.num_q_heads = number("num_q_heads");
  model.sliding_window = number("sliding_window");
  model.max_seq = maxSeq.getInt();

  model.num_layers =
      llvm::count_if(entry.getArgumentTypes(), llvm::IsaPred<KVCacheType>);
  if (model.num_layers == 0)
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
  model.dtype = *dtype;
  static_assert(int(KVLayout::PagedNHD) == int(fb::KVLayout::paged_nhd));
  static_assert(int(KVLayout::PagedVNNI) == int(fb::KVLayout::paged_vnni));
  model.kv_cache = std::make_unique<fb::KVCacheSpec>(
      fb::KVLayout(cache.getLayout()), *dtype, cache.getNumKvHeads(),
      cache.getHeadDimQk(), cache.getHeadDimV(), cache.getBlockSize());
  return success();
}

/// GEMM work for each row, attention's for each visible pair.
void ScheduleWriter::countFlops(func::FuncOp kernel) {
  fb::ModuleT &model = writer.model;
  kernel.walk([&](AttentionOp attention) {
    KVCacheType cache = attention.getCache().getType();
    (attention.getSelectedRows() ? model.attention_flops_per_logit_pair
                                 : model.attention_flops_per_pair) +=
        2 * int64_t(model.num_q_heads) *
        (cache.getHeadDimQk() + cache.getHeadDimV());
  });
  kernel.walk([&](GemmOp gemm) {
    int64_t n = cast<RankedTensorType>(
                    gemm.getEpilogue().front().getArgument(0).getType())
                    .getDimSize(1);
    int64_t k = cast<RankedTensorType>(gemm.getInput().getType()).getDimSize(1);
    std::optional<LoweringConfigAttr> config = gemm.getLoweringConfig();
    bool logits = config && config->getDomain() == RowDomain::Logits;
    (logits ? model.flops_per_logit_row : model.flops_per_token) += 2 * n * k;
  });
}

/// Set where the kernel is x * transpose(w), stored as it is: what a library
/// can compute as well. `output` is the place of the launch's first output.
static std::unique_ptr<fb::MatrixProductT> plainProduct(func::FuncOp kernel,
                                                        uint32_t output) {
  auto gemms = kernel.getOps<GemmOp>();
  if (!llvm::hasSingleElement(gemms))
    return nullptr;
  GemmOp gemm = *gemms.begin();
  Block &epilogue = gemm.getEpilogue().front();
  auto yield = cast<YieldOp>(epilogue.getTerminator());
  auto input = dyn_cast<BlockArgument>(gemm.getInput());
  auto weight = dyn_cast<BlockArgument>(gemm.getWeight());
  if (!llvm::hasSingleElement(epilogue) || yield->getNumOperands() != 1 ||
      yield->getOperand(0) != epilogue.getArgument(0) || !input || !weight ||
      cast<RankedTensorType>(weight.getType()).getRank() != 2)
    return nullptr;
  auto product = std::make_unique<fb::MatrixProductT>();
  product->input = input.getArgNumber();
  product->weight = weight.getArgNumber();
  product->output = output;
  return product;
}

LogicalResult PlanWriter::readCudaKernel(FunctionOpInterface kernel,
                                         fb::KernelT &entry) {
  auto threads = kernel->getAttrOfType<IntegerAttr>(kBlockThreadsAttr);
  auto shared = kernel->getAttrOfType<IntegerAttr>(kSharedBytesAttr);
  if (!threads || !shared)
    return kernel.emitError("kernel @")
           << kernel.getName() << " lacks " << kBlockThreadsAttr << " or "
           << kSharedBytesAttr;
  entry.num_words = kernel.getNumArguments();
  entry.cuda = std::make_unique<fb::CudaResourcesT>();
  entry.cuda->block_threads = threads.getInt();
  entry.cuda->shared_bytes = shared.getInt();
  KernelResources found = input.resources.lookup(kernel.getName());
  entry.cuda->registers = found.registers;
  entry.cuda->resident_blocks = found.residentBlocks;
  entry.cuda->spill_bytes = found.spillBytes;
  entry.cuda->occupancy = static_cast<float>(found.occupancy);
  return success();
}

LogicalResult PlanWriter::readKernel(Operation *kernel, GridAttr &firstGrid,
                                     fb::KernelT &entry) {
  auto grid = kernel->getAttrOfType<GridAttr>(kGridAttr);
  auto scratch = kernel->getAttrOfType<IntegerAttr>(kScratchBytesAttr);
  if (!grid || (!scratch && !isCuda()))
    return kernel->emitError("kernel @") << entry.name << " lacks " << kGridAttr
                                         << " or " << kScratchBytesAttr;
  if (firstGrid && firstGrid != grid)
    return kernel->emitError("kernel @")
           << entry.name << " has another grid in another ISA variant";
  firstGrid = grid;
  entry.grid = std::make_unique<fb::Grid>(
      fb::RowDomain(grid.getDomain()), grid.getPlusSequences(), grid.getBlock(),
      grid.getMultiplier());
  if (isCuda())
    return readCudaKernel(cast<FunctionOpInterface>(kernel), entry);
  entry.scratch_bytes = std::max(entry.scratch_bytes, scratch.getInt());
  return success();
}

FailureOr<uint32_t> PlanWriter::addKernel(func::FuncOp tiledKernel) {
  StringRef name = tiledKernel.getName();
  if (auto known = kernelIndices.find(name); known != kernelIndices.end())
    return known->second;
  auto kernel = std::make_unique<fb::KernelT>();
  kernel->name = name.str();
  GridAttr grid;
  for (ModuleOp variant : input.kernels) {
    Operation *function = variant.lookupSymbol(name);
    if (!function)
      return tiledKernel.emitError("kernel @")
                 << name << " is missing at level kernel",
             failure();
    if (failed(readKernel(function, grid, *kernel)))
      return failure();
  }
  uint32_t index = table->kernels.size();
  kernelIndices[name] = index;
  table->kernels.push_back(std::move(kernel));
  return index;
}

FailureOr<fb::Arg> ScheduleWriter::argument(Value operand, LaunchOp launch) {
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
        writer.weights.add(weight.getName(), /*resident=*/true);
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

FailureOr<uint32_t> ScheduleWriter::addBuffer(OpResult result,
                                              LaunchOp launch) {
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
  uint32_t index = table->buffers.size();
  table->buffers.push_back(std::move(entry));
  buffers[result] = index;
  return index;
}

LogicalResult ScheduleWriter::addLaunch(LaunchOp launch) {
  ModuleOp tiled = writer.input.tiled;
  auto kernel = tiled.lookupSymbol<func::FuncOp>(launch.getKernel());
  if (!kernel)
    return launch.emitOpError("names kernel @")
           << launch.getKernel() << ", which the tiled module lacks";
  FailureOr<uint32_t> kernelIndex = writer.addKernel(kernel);
  if (failed(kernelIndex))
    return failure();
  fb::LaunchT entry;
  entry.kernel = *kernelIndex;
  if (auto layer = launch->getAttrOfType<IntegerAttr>(kLayerAttr))
    entry.layer = layer.getInt();

  if (auto name = launch->getAttrOfType<StringAttr>(kNameAttr))
    entry.name = name.str();

  std::optional<uint32_t> cache;
  bool appends = llvm::any_of(launch.getResultTypes(),
                              [](Type type) { return isa<KVCacheType>(type); });
  for (Value operand : launch.getOperands()) {
    FailureOr<fb::Arg> arg = argument(operand, launch);
    if (failed(arg))
      return failure();
    if (arg->kind() == fb::ArgKind::kv_cache)
      cache = arg->index();
    if (arg->kind() == fb::ArgKind::buffer ||
        (arg->kind() == fb::ArgKind::kv_cache && !appends))
      entry.read_only.push_back(uint32_t(entry.args.size()));
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
      entry.args.push_back(
          fb::Arg(fb::ArgKind::score, writer.model.num_q_heads));
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
  fb::KernelT &called = *writer.table->kernels[*kernelIndex];
  if (writer.isCuda() && words != called.num_words)
    return launch.emitOpError("passes ")
           << words << " words, but kernel @" << launch.getKernel() << " takes "
           << called.num_words;
  called.num_words = words;
  if (auto planKernel = plan.lookupSymbol<func::FuncOp>(launch.getKernel())) {
    countFlops(planKernel);
    if (writer.mayUseLibraries())
      entry.product = plainProduct(planKernel, launch.getOperands().size());
  }
  table->launches.push_back(std::make_unique<fb::LaunchT>(std::move(entry)));
  return success();
}

LogicalResult ScheduleWriter::findBuckets() {
  WalkResult walk = plan.walk([&](GemmOp gemm) {
    std::optional<LoweringConfigAttr> config = gemm.getLoweringConfig();
    if (!config)
      return WalkResult(gemm.emitOpError("has no lowering_config"));
    std::vector<int32_t> buckets(config->getRowBuckets().begin(),
                                 config->getRowBuckets().end());
    if (!table->row_buckets.empty() && table->row_buckets != buckets)
      return WalkResult(gemm.emitOpError(
          "has other row_buckets than another kernel of the plan"));
    table->row_buckets = buckets;
    return WalkResult::advance();
  });
  if (table->row_buckets.empty())
    table->row_buckets = {1};
  return failure(walk.wasInterrupted());
}

LogicalResult ScheduleWriter::write() {
  func::FuncOp entry = entryOf(plan);
  if (!entry)
    return failure();
  for (BlockArgument arg : entry.getArguments())
    if (isa<KVCacheType>(arg.getType()))
      caches.try_emplace(arg, caches.size());
  for (auto launch : entry.getOps<LaunchOp>())
    if (failed(addLaunch(launch)))
      return failure();
  Operation *terminator = entry.getBody().front().getTerminator();
  auto logits = buffers.find(terminator->getOperand(0));
  if (logits == buffers.end())
    return entry.emitError(
        "entry function does not return a launch's result as logits");
  table->logits_buffer = logits->second;
  return findBuckets();
}

/// Weights are packed once, for all schedules.
LogicalResult PlanWriter::compareWeights(ModuleOp other) {
  ModuleOp first = input.schedules.front().config;
  for (auto [mine, others] : {std::pair(first, other), std::pair(other, first)})
    for (auto weight : mine.getOps<WeightOp>()) {
      auto same = others.lookupSymbol<WeightOp>(weight.getSymName());
      if (!same || same.getTensorType() != weight.getTensorType() ||
          same.getSource() != weight.getSource())
        return weight.emitOpError("@")
               << weight.getSymName()
               << " is not the same in every schedule of the plan";
    }
  return success();
}

LogicalResult PlanWriter::write() {
  table->target = input.target;
  table->chip = input.chip;
  table->multiprocessors = input.multiprocessors;
  if (failed(readManifest(input.schedules.front().config)))
    return failure();
  for (const ModuleSchedule &schedule : input.schedules) {
    // Schedules compute the same: the last one's count stays.
    model.flops_per_token = model.flops_per_logit_row = 0;
    model.attention_flops_per_pair = model.attention_flops_per_logit_pair = 0;
    ScheduleWriter writer(*this, schedule);
    if (failed(compareWeights(schedule.config)) || failed(writer.write()))
      return failure();
    table->schedules.push_back(std::move(writer.table));
  }
  table->weights = weights.take();
  for (const ModuleCode &code : input.code) {
    auto object = std::make_unique<fb::CodeT>();
    object->format = fb::CodeFormat(code.format);
    object->variant = code.variant;
    object->object.assign(code.object.begin(), code.object.end());
    table->code.push_back(std::move(object));
  }
  return success();
}

} // namespace

FailureOr<llvm::SmallVector<char, 0>>
mlir::prefill::writeModule(ArrayRef<ModulePlan> plans) {
  static_assert(int(CodeFormat::Elf) == int(fb::CodeFormat::elf) &&
                int(CodeFormat::Emulation) == int(fb::CodeFormat::emulation));
  fb::ModuleT module;
  std::vector<std::unique_ptr<fb::PlanT>> tables;
  for (const ModulePlan &plan : plans) {
    PlanWriter writer(plan);
    if (failed(writer.write()))
      return failure();
    // What a call needs is what the plan that computes least computes.
    if (tables.empty() || writer.model.flops_per_token < module.flops_per_token)
      module = std::move(writer.model);
    tables.push_back(std::move(writer.table));
  }
  module.plans = std::move(tables);
  flatbuffers::FlatBufferBuilder builder;
  builder.ForceDefaults(false);
  module.checksum = 1; // a field that is 0 would not be stored
  fb::FinishModuleBuffer(builder, fb::Module::Pack(builder, &module));
  if (!fb::sealModule(builder.GetBufferPointer(), builder.GetSize())) {
    ModuleOp model = plans.front().schedules.front().config;
    return model.emitError("the module file cannot be sealed: the FlatBuffers "
                           "verifier refuses it"),
           failure();
  }
  const char *data = reinterpret_cast<const char *>(builder.GetBufferPointer());
  return llvm::SmallVector<char, 0>(data, data + builder.GetSize());
}
