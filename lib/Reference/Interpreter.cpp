//===- Interpreter.cpp - walks a module and calls the evaluators ----------===//
#include "prefill/Reference/Interpreter.h"
#include "prefill/Reference/Evaluators.h"
#include "llvm/ADT/TypeSwitch.h"
#include <variant>

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;
using llvm::Twine;

namespace {
using TensorPtr = std::shared_ptr<const Tensor>;
using CachePtr = std::shared_ptr<const KVCache>;
/// monostate stands for the batch, of which a run has one.
using RuntimeValue = std::variant<std::monostate, TensorPtr, CachePtr>;

/// One call of the entry function.
class Run {
public:
  Run(ModuleOp module, WeightProgram &weights, Rounding rounding,
      const TraceHook &trace, const Batch &batch)
      : module(module), weights(weights), rounding(rounding), trace(trace),
        batch(batch) {}

  /// The operands of the function's return.
  Expected<SmallVector<RuntimeValue>> call(func::FuncOp function,
                                           ArrayRef<RuntimeValue> arguments);

private:
  Error runBlock(Block &block);
  Error runOp(Operation *op);
  Error withContext(Operation *op, Error error);

  const Tensor &tensor(Value value) {
    return *std::get<TensorPtr>(environment.find(value)->second);
  }
  /// Null for an absent optional operand.
  const Tensor *optionalTensor(Value value) {
    return value ? &tensor(value) : nullptr;
  }
  const KVCache &cache(Value value) {
    return *std::get<CachePtr>(environment.find(value)->second);
  }

  Error set(Value result, Tensor value);
  Error set(Value result, KVCache value);
  template <typename T> Error set(Value result, Expected<T> value) {
    return value ? set(result, std::move(*value)) : value.takeError();
  }
  /// Results of a gemm or rowwise: what the region yields.
  Error setYielded(Operation *op, Block &region);
  Error launch(LaunchOp op);

  ModuleOp module;
  WeightProgram &weights;
  Rounding rounding;
  const TraceHook &trace;
  const Batch &batch;
  DenseMap<Value, RuntimeValue> environment;
};
} // namespace

Error Run::withContext(Operation *op, Error error) {
  std::string where = ("'" + op->getName().getStringRef() + "'").str();
  if (auto layer = op->getAttrOfType<IntegerAttr>(kLayerAttr))
    where += " of layer " + std::to_string(layer.getInt());
  return createStringError(where + ": " + llvm::toString(std::move(error)));
}

Error Run::set(Value result, Tensor value) {
  auto type = cast<RankedTensorType>(result.getType());
  if (rounding == Rounding::Model)
    roundTo(type.getElementType(), value);
  if (trace)
    trace(result.getDefiningOp() ? result.getDefiningOp()
                                 : result.getParentBlock()->getParentOp(),
          value);
  environment[result] = std::make_shared<const Tensor>(std::move(value));
  return Error::success();
}

Error Run::set(Value result, KVCache value) {
  Type dtype = cast<KVCacheType>(result.getType()).getDtype();
  if (rounding == Rounding::Model) {
    for (double &element : value.keys)
      element = roundTo(dtype, element);
    for (double &element : value.vals)
      element = roundTo(dtype, element);
  }
  environment[result] = std::make_shared<const KVCache>(std::move(value));
  return Error::success();
}

Error Run::setYielded(Operation *op, Block &region) {
  if (Error error = runBlock(region))
    return error;
  for (auto [result, yielded] :
       llvm::zip(op->getResults(), region.getTerminator()->getOperands())) {
    if (isa<KVCacheType>(result.getType())) {
      // A copy first: the map may grow under a reference.
      RuntimeValue cache = environment.find(yielded)->second;
      environment[result] = std::move(cache);
      continue;
    }
    if (Error error = set(result, tensor(yielded)))
      return error;
  }
  return Error::success();
}

Error Run::launch(LaunchOp op) {
  auto kernel = module.lookupSymbol<func::FuncOp>(op.getKernel());
  SmallVector<RuntimeValue> arguments;
  for (Value operand : op.getOperands())
    arguments.push_back(environment.find(operand)->second);
  Expected<SmallVector<RuntimeValue>> results = call(kernel, arguments);
  if (!results)
    return results.takeError();
  if (results->size() != op.getNumResults())
    return createStringError("kernel @" + op.getKernel() + " returns " +
                             Twine(results->size()) + " values, expected " +
                             Twine(op.getNumResults()));
  for (auto [result, value] : llvm::zip(op.getResults(), *results))
    environment[result] = value;
  return Error::success();
}

static SmallVector<int64_t> channelsOf(ResultRange results) {
  return llvm::map_to_vector(results, [](Value value) {
    return cast<RankedTensorType>(value.getType()).getShape().back();
  });
}

Error Run::runOp(Operation *op) {
  using namespace reference;
  return llvm::TypeSwitch<Operation *, Error>(op)
      .Case([&](GetWeightOp op) -> Error {
        Expected<TensorPtr> value = weights.get(op.getName());
        if (!value)
          return value.takeError();
        environment[op.getResult()] = *value;
        return Error::success();
      })
      .Case([&](EmbedOp op) {
        return set(op.getResult(), embed(batch, tensor(op.getTable())));
      })
      .Case([&](RMSNormOp op) {
        return set(op.getResult(),
                   rmsNorm(tensor(op.getInput()), tensor(op.getGain()),
                           op.getEps().convertToDouble()));
      })
      .Case([&](LinearOp op) {
        return set(op.getResult(),
                   linear(tensor(op.getInput()), tensor(op.getWeight()),
                          optionalTensor(op.getBias())));
      })
      .Case([&](LMHeadOp op) {
        return set(op.getResult(), linear(tensor(op.getInput()),
                                          tensor(op.getWeight()), nullptr));
      })
      .Case([&](RopeOp op) {
        return set(op.getResult(), rope(tensor(op.getInput()), batch,
                                        optionalTensor(op.getTable()),
                                        op.getRope(), op.getHeadDim()));
      })
      .Case([&](KVAppendOp op) {
        return set(op.getResult(),
                   kvAppend(tensor(op.getKey()), tensor(op.getValue()),
                            cache(op.getCache()), batch));
      })
      .Case([&](AttentionOp op) -> Error {
        AttentionParameters parameters;
        parameters.scale = op.getScale().convertToDouble();
        parameters.causal = op.getCausal();
        if (std::optional<uint64_t> window = op.getSlidingWindow())
          parameters.slidingWindow = *window;
        if (std::optional<APFloat> cap = op.getSoftcap())
          parameters.softcap = cap->convertToDouble();
        parameters.base2 = op.getBase2();
        if (std::optional<uint64_t> splits = op.getNumSplits()) {
          Expected<SplitAttention> parts =
              splitAttention(tensor(op.getQuery()), cache(op.getCache()), batch,
                             parameters, *splits);
          if (!parts)
            return parts.takeError();
          if (Error error = set(op.getResult(), std::move(parts->outputs)))
            return error;
          return set(op.getLse(), std::move(parts->lse));
        }
        llvm::Expected<Tensor> rows = attention(
            tensor(op.getQuery()), cache(op.getCache()), batch, parameters);
        if (rows && op.getSelectedRows())
          rows = selectRows(*rows, batch);
        return set(op.getResult(), std::move(rows));
      })
      .Case([&](GatedActOp op) {
        return set(op.getResult(), gatedAct(op.getKind(), tensor(op.getGate()),
                                            tensor(op.getUp())));
      })
      .Case([&](AddOp op) {
        return set(op.getResult(),
                   add(tensor(op.getLhs()), tensor(op.getRhs())));
      })
      .Case([&](ScaleOp op) {
        return set(op.getResult(), scale(tensor(op.getInput()),
                                         op.getFactor().convertToDouble()));
      })
      .Case([&](SelectRowsOp op) {
        return set(op.getResult(), selectRows(tensor(op.getInput()), batch));
      })
      .Case([&](SplitOp op) -> Error {
        std::vector<Tensor> parts =
            split(tensor(op.getInput()), channelsOf(op.getResults()));
        for (auto [result, part] : llvm::zip(op.getResults(), parts))
          if (Error error = set(result, std::move(part)))
            return error;
        return Error::success();
      })
      .Case([&](DeinterleaveOp op) -> Error {
        auto [first, second] =
            deinterleave(tensor(op.getInput()), op.getGranularity(),
                         channelsOf(op->getResults()).front());
        if (Error error = set(op.getFirst(), std::move(first)))
          return error;
        return set(op.getSecond(), std::move(second));
      })
      .Case([&](BiasAddOp op) {
        return set(op.getResult(),
                   biasAdd(tensor(op.getInput()), tensor(op.getBias())));
      })
      .Case([&](RowSumsqOp op) {
        return set(op.getResult(),
                   rowSumsq(tensor(op.getInput()),
                            channelsOf(op->getResults()).front()));
      })
      .Case([&](CombineSplitsOp op) {
        return set(op.getResult(),
                   combineSplits(tensor(op.getPartials()), tensor(op.getLse()),
                                 channelsOf(op->getResults()).front()));
      })
      .Case([&](RowRMSScaleOp op) {
        return set(op.getResult(),
                   rowRMSScale(tensor(op.getInput()), tensor(op.getSumsq()),
                               op.getEps().convertToDouble(),
                               op.getChannels()));
      })
      .Case([&](QuantizeRowsOp op) -> Error {
        QuantizedRows rows = quantizeRows(tensor(op.getInput()), rounding);
        if (Error error = set(op.getQuantized(), std::move(rows.integers)))
          return error;
        return set(op.getScale(), std::move(rows.scales));
      })
      .Case([&](DequantizeOp op) {
        return set(op.getResult(),
                   dequantize(tensor(op.getInput()), tensor(op.getRowScale()),
                              tensor(op.getColumnScale())));
      })
      .Case([&](GemmOp op) -> Error {
        Block &epilogue = op.getEpilogue().front();
        if (!op.getOuts().empty())
          return createStringError("the tile form is not interpreted");
        if (Error error = set(
                epilogue.getArgument(0),
                linear(tensor(op.getInput()), tensor(op.getWeight()), nullptr)))
          return error;
        return setYielded(op, epilogue);
      })
      .Case([&](RowwiseOp op) -> Error {
        if (!op.getOuts().empty())
          return createStringError("the tile form is not interpreted");
        return setYielded(op, op.getBody().front());
      })
      .Case([&](LaunchOp op) { return launch(op); })
      .Default([](Operation *) -> Error {
        return createStringError("the reference interpreter has no evaluator "
                                 "for this op");
      });
}

Error Run::runBlock(Block &block) {
  for (Operation &op : block.without_terminator())
    if (Error error = runOp(&op))
      return withContext(&op, std::move(error));
  return Error::success();
}

Expected<SmallVector<RuntimeValue>>
Run::call(func::FuncOp function, ArrayRef<RuntimeValue> arguments) {
  if (!function.getBody().hasOneBlock())
    return createStringError("function @" + function.getName() +
                             " has no body of one block");
  Block &body = function.getBody().front();
  for (auto [parameter, argument] : llvm::zip(body.getArguments(), arguments))
    environment[parameter] = argument;
  if (Error error = runBlock(body))
    return error;
  return llvm::map_to_vector(
      body.getTerminator()->getOperands(),
      [&](Value value) { return environment.find(value)->second; });
}

//===----------------------------------------------------------------------===//
// Interpreter
//===----------------------------------------------------------------------===//

Interpreter::Interpreter(ModuleOp module, WeightProvider &provider,
                         Rounding rounding)
    : module(module), weights(module, provider, rounding), rounding(rounding) {}

static Expected<func::FuncOp> findEntry(ModuleOp module) {
  auto entry = module.lookupSymbol<func::FuncOp>(kEntryName);
  if (!entry || entry.isExternal())
    return createStringError("the module has no function @" +
                             Twine(kEntryName));
  for (Type type : entry.getArgumentTypes())
    if (!isa<BatchType, KVCacheType>(type))
      return createStringError("function @" + Twine(kEntryName) +
                               " has an argument that is neither a batch nor "
                               "a cache");
  return entry;
}

Expected<std::vector<KVCache>> Interpreter::makeCaches(int64_t numBlocks) {
  Expected<func::FuncOp> entry = findEntry(module);
  if (!entry)
    return entry.takeError();
  std::vector<KVCache> caches;
  for (Type type : entry->getArgumentTypes())
    if (auto cacheType = dyn_cast<KVCacheType>(type))
      caches.emplace_back(cacheType, numBlocks);
  return caches;
}

Expected<int64_t> Interpreter::blockSize() {
  Expected<func::FuncOp> entry = findEntry(module);
  if (!entry)
    return entry.takeError();
  std::optional<int64_t> size;
  for (Type type : entry->getArgumentTypes())
    if (auto cacheType = dyn_cast<KVCacheType>(type)) {
      if (size.value_or(cacheType.getBlockSize()) != cacheType.getBlockSize())
        return createStringError(
            "the layers' caches have block sizes " + Twine(*size) + " and " +
            Twine(cacheType.getBlockSize()) + ", expected one for all");
      size = cacheType.getBlockSize();
    }
  return size.value_or(1);
}

Expected<Tensor> Interpreter::run(const Batch &batch,
                                  std::vector<KVCache> &caches) {
  Expected<func::FuncOp> entry = findEntry(module);
  if (!entry)
    return entry.takeError();
  if (Error error = batch.verify())
    return error;
  SmallVector<RuntimeValue> arguments;
  size_t used = 0;
  for (Type type : entry->getArgumentTypes()) {
    if (isa<BatchType>(type)) {
      arguments.push_back(std::monostate());
      continue;
    }
    if (used == caches.size())
      return createStringError("the model has more than the " +
                               Twine(caches.size()) + " caches given");
    arguments.push_back(std::make_shared<const KVCache>(caches[used++]));
  }
  Run run(module, weights, rounding, trace, batch);
  Expected<SmallVector<RuntimeValue>> results = run.call(*entry, arguments);
  if (!results)
    return results.takeError();
  TensorPtr logits;
  std::vector<KVCache> returned;
  for (RuntimeValue &value : *results) {
    if (auto *cache = std::get_if<CachePtr>(&value))
      returned.push_back(**cache);
    else if (auto *tensor = std::get_if<TensorPtr>(&value))
      logits = *tensor;
  }
  if (!logits || returned.size() != used)
    return createStringError("function @" + Twine(kEntryName) +
                             " returns no logits, or not as many caches as it "
                             "takes");
  caches = std::move(returned);
  return *logits;
}
