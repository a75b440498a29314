//===- DecoderBuilder.cpp - a decoder at the model level ------------------===//
#include "prefill/Import/DecoderBuilder.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace mlir;
using namespace mlir::prefill;

namespace {

class DecoderBuilder {
public:
  DecoderBuilder(MLIRContext *context, const DecoderConfig &config,
                 TensorNaming naming)
      : config(config), naming(naming), builder(context),
        dtype(elementType(context)), location(builder.getUnknownLoc()) {}

  OwningOpRef<ModuleOp> build();

private:
  Type elementType(MLIRContext *context) const;
  RopeAttr ropeAttr();
  DictionaryAttr modelAttr();
  Value buildLayer(Value x, Value cacheIn, int64_t layer, Value &cacheOut);

  RankedTensorType rows(int64_t channels) const {
    return RankedTensorType::get({ShapedType::kDynamic, channels}, dtype);
  }
  /// Creates an op of the layer at hand.
  template <typename OpTy, typename... Args> OpTy create(Args &&...args) {
    OpTy op = OpTy::create(builder, location, std::forward<Args>(args)...);
    if (currentLayer >= 0)
      op->setAttr(kLayerAttr, builder.getI64IntegerAttr(currentLayer));
    return op;
  }
  Value getWeight(const Twine &name);
  Value norm(Value x, StringRef gain, int64_t headDim = 0);
  Value linear(Value x, StringRef name, int64_t channels, bool bias);
  Value rope(Value x);
  Value add(Value lhs, Value rhs);

  const DecoderConfig &config;
  TensorNaming naming;
  OpBuilder builder;
  Type dtype;
  Location location;
  Value batch;
  RopeAttr ropeValue;
  /// -1 outside of the layers.
  int64_t currentLayer = -1;
  /// "layers.0." or empty.
  std::string symbolPrefix;
  llvm::StringMap<RankedTensorType> weightTypes;
};

} // namespace

Type DecoderBuilder::elementType(MLIRContext *context) const {
  switch (config.dtype) {
  case DecoderConfig::ElementType::f32:
    return Float32Type::get(context);
  case DecoderConfig::ElementType::bf16:
    return BFloat16Type::get(context);
  case DecoderConfig::ElementType::f16:
    return Float16Type::get(context);
  }
  llvm_unreachable("unknown element type");
}

RopeAttr DecoderBuilder::ropeAttr() {
  const RopeConfig &rope = config.rope;
  RopeScaling scaling = RopeScaling::None;
  if (rope.scaling == RopeConfig::Scaling::linear)
    scaling = RopeScaling::Linear;
  if (rope.scaling == RopeConfig::Scaling::llama3)
    scaling = RopeScaling::Llama3;
  // Meta's files keep the pairs of neighbours that the paper rotates.
  bool interleaved = rope.interleaved || naming == TensorNaming::meta;
  return RopeAttr::get(builder.getContext(), rope.theta, rope.rotaryDim,
                       interleaved, scaling, rope.factor, rope.lowFreqFactor,
                       rope.highFreqFactor, rope.originalMaxPosition);
}

DictionaryAttr DecoderBuilder::modelAttr() {
  // The module's window holds for every layer: it is 0 where layers differ.
  int64_t window = config.slidingWindows.front();
  if (!llvm::all_equal(config.slidingWindows))
    window = 0;
  auto number = [&](StringRef name, int64_t value) {
    return builder.getNamedAttr(name, builder.getI64IntegerAttr(value));
  };
  return builder.getDictionaryAttr(
      {builder.getNamedAttr("model_type",
                            builder.getStringAttr(config.modelType)),
       number("vocab_size", config.vocabSize),
       number("hidden_size", config.hiddenSize),
       number("num_layers", config.numLayers),
       number("num_q_heads", config.numQHeads),
       number("max_position", config.maxPosition),
       number("sliding_window", window),
       builder.getNamedAttr("tied_embeddings",
                            builder.getBoolAttr(config.tiedEmbeddings))});
}

Value DecoderBuilder::getWeight(const Twine &name) {
  std::string symbol = (symbolPrefix + name).str();
  // No layer attribute: a weight's value belongs to its users.
  return GetWeightOp::create(builder, location, weightTypes.at(symbol), symbol);
}

Value DecoderBuilder::norm(Value x, StringRef gain, int64_t headDim) {
  IntegerAttr group = headDim ? builder.getI64IntegerAttr(headDim) : nullptr;
  Value weight = getWeight(gain);
  return create<RMSNormOp>(x.getType(), x, weight,
                           builder.getF64FloatAttr(config.rmsNormEps), group);
}

Value DecoderBuilder::linear(Value x, StringRef name, int64_t channels,
                             bool bias) {
  Value weight = getWeight(name);
  Value biasValue = bias ? getWeight(name + ".bias") : Value();
  auto op = create<LinearOp>(rows(channels), x, weight, biasValue);
  op->setAttr(kNameAttr, builder.getStringAttr(name));
  return op;
}

Value DecoderBuilder::rope(Value x) {
  return create<RopeOp>(x.getType(), x, batch, /*table=*/Value(), ropeValue,
                        builder.getI64IntegerAttr(config.headDim));
}

Value DecoderBuilder::add(Value lhs, Value rhs) {
  return create<AddOp>(lhs.getType(), lhs, rhs);
}

Value DecoderBuilder::buildLayer(Value x, Value cacheIn, int64_t layer,
                                 Value &cacheOut) {
  currentLayer = layer;
  symbolPrefix = "layers." + std::to_string(layer) + ".";
  location =
      NameLoc::get(builder.getStringAttr(StringRef(symbolPrefix).drop_back()));

  Value normed = norm(x, "input_layernorm");
  int64_t qWidth = config.numQHeads * config.headDim;
  int64_t kvWidth = config.numKvHeads * config.headDim;
  Value query = linear(normed, "q_proj", qWidth, config.qkvBias);
  Value key = linear(normed, "k_proj", kvWidth, config.qkvBias);
  Value value = linear(normed, "v_proj", kvWidth, config.qkvBias);
  if (config.qkNorm) {
    query = norm(query, "q_norm", config.headDim);
    key = norm(key, "k_norm", config.headDim);
  }
  query = rope(query);
  key = rope(key);
  cacheOut = create<KVAppendOp>(cacheIn.getType(), key, value, cacheIn, batch);
  int64_t window = config.slidingWindows[layer];
  auto attended = create<AttentionOp>(
      rows(qWidth), /*lse=*/Type(), query, cacheOut, batch,
      builder.getF64FloatAttr(1.0 / std::sqrt(double(config.headDim))),
      /*causal=*/builder.getUnitAttr(),
      window ? builder.getI64IntegerAttr(window) : IntegerAttr(),
      /*softcap=*/FloatAttr(), /*base2=*/UnitAttr(),
      /*selected_rows=*/UnitAttr(), /*num_splits=*/IntegerAttr());
  x = add(x, linear(attended.getResult(), "o_proj", config.hiddenSize,
                    config.oBias));

  normed = norm(x, "post_attention_layernorm");
  Value gate =
      linear(normed, "gate_proj", config.intermediateSize, config.mlpBias);
  Value up = linear(normed, "up_proj", config.intermediateSize, config.mlpBias);
  GateKind kind = config.activation == DecoderConfig::Activation::silu
                      ? GateKind::Silu
                      : GateKind::GeluTanh;
  Value activated = create<GatedActOp>(gate.getType(), gate, up, kind);
  x = add(x, linear(activated, "down_proj", config.hiddenSize, config.mlpBias));

  currentLayer = -1;
  symbolPrefix.clear();
  return x;
}

OwningOpRef<ModuleOp> DecoderBuilder::build() {
  MLIRContext *context = builder.getContext();
  OwningOpRef<ModuleOp> module = ModuleOp::create(location);
  module->getOperation()->setAttr("prefill.model", modelAttr());
  builder.setInsertionPointToEnd(module->getBody());
  for (const WeightSpec &weight : decoderWeights(config, naming)) {
    auto type = RankedTensorType::get(weight.shape, dtype);
    weightTypes[weight.symbol] = type;
    WeightOp::create(builder, location, weight.symbol, type,
                     CheckpointAttr::get(context, weight.tensor));
  }

  auto cacheType = KVCacheType::get(context, KVLayout::Contiguous,
                                    config.numKvHeads, config.headDim,
                                    config.headDim, dtype, config.maxPosition);
  auto logitsType = RankedTensorType::get(
      {ShapedType::kDynamic, config.vocabSize}, builder.getF32Type());
  SmallVector<Type> argTypes{BatchType::get(context)};
  SmallVector<Type> resultTypes{logitsType};
  argTypes.append(config.numLayers, cacheType);
  resultTypes.append(config.numLayers, cacheType);
  auto function =
      func::FuncOp::create(builder, location, kEntryName,
                           builder.getFunctionType(argTypes, resultTypes));
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  batch = entry->getArgument(0);
  ropeValue = ropeAttr();

  Value embedding = getWeight("embed_tokens");
  Value x = create<EmbedOp>(rows(config.hiddenSize), batch, embedding);
  SmallVector<Value> results{Value()};
  for (int64_t layer = 0; layer < config.numLayers; ++layer) {
    Value cache;
    x = buildLayer(x, entry->getArgument(1 + layer), layer, cache);
    results.push_back(cache);
  }

  location = builder.getUnknownLoc();
  x = create<SelectRowsOp>(x.getType(), x, batch);
  x = norm(x, "norm");
  Value head = config.tiedEmbeddings ? embedding : getWeight("lm_head");
  auto logits = create<LMHeadOp>(logitsType, x, head);
  logits->setAttr(kNameAttr, builder.getStringAttr("lm_head"));
  results.front() = logits;
  func::ReturnOp::create(builder, location, results);
  return module;
}

OwningOpRef<ModuleOp> mlir::prefill::buildDecoder(MLIRContext *context,
                                                  const DecoderConfig &config,
                                                  TensorNaming naming) {
  context->loadDialect<PrefillDialect, func::FuncDialect>();
  return DecoderBuilder(context, config, naming).build();
}
