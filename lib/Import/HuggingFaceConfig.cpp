//===- HuggingFaceConfig.cpp - config.json to a decoder's numbers ---------===//
#include "prefill/Import/HuggingFaceConfig.h"
#include "ConfigReader.h"
#include "HuggingFaceRope.h"
#include "prefill/Import/Limits.h"
#include "prefill/checkpoint/JsonFile.h"

#include <algorithm>

using namespace mlir::prefill;
using nlohmann::json;
using ::prefill::rt::Error;
using ::prefill::rt::Result;

namespace {

/// What a configuration class of transformers assumes for absent keys.
struct Family {
  const char *modelType;
  const char *architecture;
  int64_t numKvHeads; ///< 0: as many as query heads
  int64_t headDim;    ///< 0: hidden_size / num_attention_heads
  int64_t maxPosition;
};
constexpr Family families[] = {
    {"llama", "LlamaForCausalLM", 0, 0, 2048},
    {"mistral", "MistralForCausalLM", 8, 0, 4096 * 32},
    {"qwen2", "Qwen2ForCausalLM", 32, 0, 32768},
    {"qwen3", "Qwen3ForCausalLM", 32, 128, 32768},
};

std::string listNames(const char *Family::*name) {
  std::string list;
  size_t count = std::size(families);
  for (size_t i = 0; i < count; ++i)
    list += (i == 0           ? ""
             : i + 1 == count ? " or "
                              : ", ") +
            quoteJson(families[i].*name);
  return list;
}

const Family *parseFamily(ConfigReader &reader) {
  const json *type = reader.find("model_type");
  const Family *family = std::find_if(
      std::begin(families), std::end(families),
      [&](const Family &f) { return type && *type == f.modelType; });
  if (family == std::end(families)) {
    reader.refuse("model_type", listNames(&Family::modelType));
    return nullptr;
  }
  // transformers takes the class from `architectures`, if there is one.
  if (const json *architectures = reader.find("architectures"))
    if (*architectures != json::array({family->architecture}))
      reader.refuse("architectures", "[\"" + std::string(family->architecture) +
                                         "\"] with model_type \"" +
                                         family->modelType + "\"");
  return family;
}

/// Keys that make other models of a decoder, with the value at which they say
/// nothing. Null says nothing; `off`: so do false, 0 and empty lists and
/// objects; `one`: so does 1.
enum class Neutral { off, one, never };
struct ForeignKey {
  const char *name; ///< of the whole key, or a part of it when `part`
  Neutral neutral;
  bool part = false;
};
constexpr ForeignKey foreignKeys[] = {
    // Quantised weights.
    {"quantization_config", Neutral::never},
    {"compression_config", Neutral::never},
    // Scores and logits.
    {"softcap", Neutral::off, true},
    {"soft_cap", Neutral::off, true},
    {"logit_scale", Neutral::one},
    {"logits_scaling", Neutral::one},
    {"attention_multiplier", Neutral::never},
    {"multiplier", Neutral::one, true},
    {"query_pre_attn_scalar", Neutral::never},
    {"scale_emb", Neutral::one},
    {"scale_depth", Neutral::one},
    {"dim_model_base", Neutral::never},
    {"mup_", Neutral::one, true},
    {"clip_qkv", Neutral::off},
    {"attention_sink", Neutral::off, true},
    {"alibi", Neutral::off, true},
    {"use_logn_attn", Neutral::off},
    // Which keys a query sees.
    {"attention_chunk_size", Neutral::off},
    {"dual_chunk_attention_config", Neutral::off},
    {"sparse_attention_config", Neutral::off},
    {"use_bidirectional_attention", Neutral::off},
    {"add_cross_attention", Neutral::off},
    {"cross_attention_layers", Neutral::off},
    {"is_encoder_decoder", Neutral::off},
    // RoPE.
    {"no_rope_layer", Neutral::off, true},
    {"rotary_pct", Neutral::one},
    {"rope_pct", Neutral::one},
    {"rotary_dim", Neutral::never},
    {"rope_ratio", Neutral::one},
    {"rope_local_base_freq", Neutral::never},
    {"rope_interleave", Neutral::off, true},
    {"use_mrope", Neutral::off},
    {"use_dynamic_ntk", Neutral::off},
    // Other weights.
    {"expert", Neutral::off, true},
    {"lora_rank", Neutral::off, true},
    {"v_head_dim", Neutral::off},
    {"qk_rope_head_dim", Neutral::off},
    {"qk_nope_head_dim", Neutral::off},
    {"parallel_attn", Neutral::off},
    {"parallel_residual", Neutral::off, true},
    {"use_bias", Neutral::off},
    {"bias", Neutral::off},
    {"attention_out_bias", Neutral::off},
    {"block_configs", Neutral::off},
    {"per_layer_config", Neutral::off},
    {"pruned_heads", Neutral::off},
    {"num_nextn_predict_layers", Neutral::off},
    // Slicing changes the order of additions.
    {"pretraining_tp", Neutral::one},
};

bool isNeutral(const json &value, Neutral neutral) {
  if (value.is_null())
    return true;
  switch (neutral) {
  case Neutral::off:
    return value == false || value == 0 || value == "" ||
           (value.is_structured() && value.empty());
  case Neutral::one:
    return value == 1;
  case Neutral::never:
    return false;
  }
  return false;
}

const char *describe(Neutral neutral) {
  switch (neutral) {
  case Neutral::off:
    return "null, false or 0: what it asks for is not supported";
  case Neutral::one:
    return "1 or null: what it asks for is not supported";
  case Neutral::never:
    return "no such key or null: what it asks for is not supported";
  }
  return "";
}

void refuseForeignKeys(ConfigReader &reader, const json &root) {
  for (const ForeignKey &foreign : foreignKeys)
    for (const auto &[key, value] : root.items()) {
      bool matches = foreign.part ? key.find(foreign.name) != std::string::npos
                                  : key == foreign.name;
      if (matches && !isNeutral(value, foreign.neutral))
        return reader.refuse(key, describe(foreign.neutral));
    }
  // Code that comes with the checkpoint may compute anything.
  if (const json *map = reader.find("auto_map"))
    for (const char *name : {"AutoModel", "AutoModelForCausalLM"})
      if (map->is_object() && map->contains(name))
        reader.refuse("auto_map", std::string("no ") + name +
                                      ": a checkpoint's own code is not run");
}

void parseSizes(ConfigReader &reader, const Family &family,
                DecoderConfig &config) {
  config.vocabSize = reader.integer("vocab_size", 1, maxVocabSize);
  config.hiddenSize = reader.integer("hidden_size", 1, maxHiddenSize);
  config.intermediateSize =
      reader.integer("intermediate_size", 1, maxIntermediateSize);
  config.numLayers = reader.integer("num_hidden_layers", 1, maxNumLayers);
  config.numQHeads = reader.integer("num_attention_heads", 1, maxNumHeads);
  // Null means one KV head for each query head; absent, the class's default.
  bool asMany = reader.isNull("num_key_value_heads") || !family.numKvHeads;
  config.numKvHeads =
      reader.integer("num_key_value_heads", 1, maxNumHeads,
                     asMany ? config.numQHeads : family.numKvHeads);
  if (config.numQHeads % config.numKvHeads)
    reader.fail("num_attention_heads is " + std::to_string(config.numQHeads) +
                ", expected a multiple of num_key_value_heads (" +
                std::to_string(config.numKvHeads) + ")");

  if (reader.find("head_dim")) {
    config.headDim = reader.integer("head_dim", 1, maxHeadDim);
  } else if (family.headDim) {
    config.headDim = family.headDim;
    if (reader.isNull("head_dim"))
      reader.refuse("head_dim", "a whole number: transformers has no rule for "
                                "null in this model");
  } else {
    config.headDim = config.hiddenSize / config.numQHeads;
    if (config.hiddenSize % config.numQHeads)
      reader.fail("hidden_size is " + std::to_string(config.hiddenSize) +
                  ", expected a multiple of num_attention_heads (" +
                  std::to_string(config.numQHeads) +
                  ") where head_dim is absent");
    else if (config.headDim > maxHeadDim)
      reader.fail("hidden_size / num_attention_heads is " +
                  std::to_string(config.headDim) + ", expected at most " +
                  std::to_string(maxHeadDim));
  }
  config.maxPosition = reader.integer("max_position_embeddings", 1,
                                      maxPositions, family.maxPosition);
  config.rmsNormEps = reader.positive("rms_norm_eps", 1.0, 1e-6);
}

/// Biases and norms, which the class decides more than the keys.
void parseVariants(ConfigReader &reader, const std::string &modelType,
                   DecoderConfig &config) {
  bool attentionBias = reader.boolean("attention_bias", false);
  bool mlpBias = reader.boolean("mlp_bias", false);
  bool hasAttentionBias = modelType == "llama" || modelType == "qwen3";
  if (attentionBias && !hasAttentionBias)
    reader.refuse("attention_bias", "false or absent in a " + modelType +
                                        " model, which does not read it");
  if (mlpBias && modelType != "llama")
    reader.refuse("mlp_bias", "false or absent in a " + modelType +
                                  " model, which does not read it");
  config.qkvBias = attentionBias || modelType == "qwen2";
  config.oBias = attentionBias;
  config.mlpBias = mlpBias;
  // Variants that the classes with this name do not have, or always have.
  for (const char *key : {"qkv_bias", "use_qkv_bias"})
    if (reader.boolean(key, config.qkvBias) != config.qkvBias)
      reader.refuse(key, config.qkvBias ? "true" : "false");
  config.qkNorm = modelType == "qwen3";
  for (const char *key : {"qk_norm", "use_qk_norm", "qk_layernorm"})
    if (reader.boolean(key, config.qkNorm) != config.qkNorm)
      reader.refuse(key, config.qkNorm ? "true" : "false");
  config.tiedEmbeddings = reader.boolean("tie_word_embeddings", false);

  std::string activation = reader.string("hidden_act", "silu");
  // gelu_new and gelu_pytorch_tanh are the same formula.
  if (activation == "gelu_pytorch_tanh" || activation == "gelu_new")
    config.activation = DecoderConfig::Activation::geluTanh;
  else if (activation != "silu" && activation != "swish")
    reader.refuse("hidden_act", "\"silu\" or \"gelu_pytorch_tanh\"");
  const json *other = reader.find("hidden_activation");
  if (other && *other != activation)
    reader.refuse("hidden_activation",
                  "the same as hidden_act (" + quoteJson(activation) + ")");
}

/// Qwen: `layer_types` if given, else layers from `max_window_layers` on.
void parseQwenWindows(ConfigReader &reader, int64_t window,
                      DecoderConfig &config) {
  const json *types = reader.find("layer_types");
  if (!types) {
    int64_t first = reader.integer("max_window_layers", 0, maxPositions, 28);
    for (int64_t layer = first; layer < config.numLayers; ++layer)
      config.slidingWindows[layer] = window;
    return;
  }
  for (int64_t layer = 0; layer < config.numLayers; ++layer) {
    const json &type = (*types)[layer];
    if (type == "sliding_attention" && !window)
      return reader.fail("layer_types[" + std::to_string(layer) +
                         "] is \"sliding_attention\", expected "
                         "\"full_attention\" without a sliding window");
    if (type == "sliding_attention")
      config.slidingWindows[layer] = window;
  }
}

void parseWindows(ConfigReader &reader, const std::string &modelType,
                  DecoderConfig &config) {
  config.slidingWindows.assign(config.numLayers, 0);
  bool isQwen = modelType == "qwen2" || modelType == "qwen3";
  bool use = reader.boolean("use_sliding_window", !isQwen);
  // Absent, MistralConfig and the Qwen classes assume 4096; null means none.
  std::optional<int64_t> fallback =
      reader.isNull("sliding_window") || modelType == "llama" ? 0 : 4096;
  int64_t window = reader.integer("sliding_window", 1, maxPositions, fallback);
  if (!use && modelType == "mistral" && window)
    reader.refuse("use_sliding_window",
                  "true or absent in a mistral model, which reads "
                  "sliding_window alone");
  if (!use)
    window = 0;
  if (modelType == "llama" && window)
    reader.refuse("sliding_window",
                  "null or absent in a llama model, which does not read it");
  if (const json *types = reader.find("layer_types")) {
    if (!types->is_array() || int64_t(types->size()) != config.numLayers)
      return reader.refuse("layer_types", "a list of num_hidden_layers (" +
                                              std::to_string(config.numLayers) +
                                              ") strings");
    bool known = std::all_of(types->begin(), types->end(), [](const json &t) {
      return t == "full_attention" || t == "sliding_attention";
    });
    if (!known)
      return reader.refuse("layer_types",
                           "\"full_attention\" or \"sliding_attention\" alone");
  }
  if (isQwen)
    return parseQwenWindows(reader, window, config);
  // One rule for all layers; the class does not look at layer_types.
  config.slidingWindows.assign(config.numLayers, window);
  const char *type = window ? "sliding_attention" : "full_attention";
  if (const json *types = reader.find("layer_types"))
    for (const json &each : *types)
      if (each != type)
        return reader.refuse("layer_types",
                             std::string("\"") + type +
                                 "\" in every layer of a " + modelType +
                                 " model with this sliding_window");
}

std::optional<DecoderConfig::ElementType> parseDtype(ConfigReader &reader) {
  std::optional<DecoderConfig::ElementType> dtype;
  for (const char *key : {"torch_dtype", "dtype"}) {
    if (!reader.find(key))
      continue;
    std::string name = reader.string(key);
    std::optional<DecoderConfig::ElementType> parsed;
    if (name == "float32")
      parsed = DecoderConfig::ElementType::f32;
    else if (name == "bfloat16")
      parsed = DecoderConfig::ElementType::bf16;
    else if (name == "float16")
      parsed = DecoderConfig::ElementType::f16;
    else
      reader.refuse(key, "\"float32\", \"bfloat16\" or \"float16\"");
    if (dtype && parsed && *dtype != *parsed)
      reader.refuse(key, "the same as torch_dtype (" +
                             quoteJson(*reader.find("torch_dtype")) + ")");
    dtype = parsed;
  }
  return dtype;
}

} // namespace

Result<HuggingFaceConfig>
mlir::prefill::parseHuggingFaceConfig(const json &root,
                                      const std::string &path) {
  std::string where = "'" + path + "'";
  if (!root.is_object())
    return Error{::prefill::rt::ErrorCode::invalidWeights,
                 where + ": the file holds " + quoteJson(root) +
                     ", expected an object"};
  ConfigReader reader(root, where);
  HuggingFaceConfig result;
  DecoderConfig &config = result.decoder;

  const Family *family = parseFamily(reader);
  if (!family)
    return reader.takeError();
  config.modelType = family->modelType;
  refuseForeignKeys(reader, root);
  parseSizes(reader, *family, config);
  parseVariants(reader, config.modelType, config);
  parseWindows(reader, config.modelType, config);
  result.dtype = parseDtype(reader);
  if (reader.failed())
    return reader.takeError();
  Result<RopeConfig> rope = parseHuggingFaceRope(root, config.headDim, where);
  if (!rope)
    return rope.takeError();
  config.rope = *rope;
  return result;
}

Result<HuggingFaceConfig>
mlir::prefill::readHuggingFaceConfig(const std::string &path) {
  Result<json> root = ::prefill::rt::readJsonFile(path);
  if (!root)
    return root.takeError();
  return parseHuggingFaceConfig(*root, path);
}
