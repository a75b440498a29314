//===- DecoderConfig.cpp - the weights of a decoder -----------------------===//
#include "prefill/Import/DecoderConfig.h"

using namespace mlir::prefill;

namespace {

/// What a weight is called: in the IR, by Hugging Face, by Meta.
struct Name {
  const char *symbol;
  const char *huggingFace;
  const char *meta;
};

// Of the model.
constexpr Name embedTokens{"embed_tokens", "model.embed_tokens",
                           "tok_embeddings"};
constexpr Name finalNorm{"norm", "model.norm", "norm"};
constexpr Name lmHead{"lm_head", "lm_head", "output"};
// Of a layer.
constexpr Name inputNorm{"input_layernorm", "input_layernorm",
                         "attention_norm"};
constexpr Name qProj{"q_proj", "self_attn.q_proj", "attention.wq"};
constexpr Name kProj{"k_proj", "self_attn.k_proj", "attention.wk"};
constexpr Name vProj{"v_proj", "self_attn.v_proj", "attention.wv"};
constexpr Name qNorm{"q_norm", "self_attn.q_norm", "attention.q_norm"};
constexpr Name kNorm{"k_norm", "self_attn.k_norm", "attention.k_norm"};
constexpr Name oProj{"o_proj", "self_attn.o_proj", "attention.wo"};
constexpr Name postNorm{"post_attention_layernorm", "post_attention_layernorm",
                        "ffn_norm"};
constexpr Name gateProj{"gate_proj", "mlp.gate_proj", "feed_forward.w1"};
constexpr Name upProj{"up_proj", "mlp.up_proj", "feed_forward.w3"};
constexpr Name downProj{"down_proj", "mlp.down_proj", "feed_forward.w2"};

} // namespace

std::vector<WeightSpec>
mlir::prefill::decoderWeights(const DecoderConfig &config,
                              TensorNaming naming) {
  std::vector<WeightSpec> weights;
  bool meta = naming == TensorNaming::meta;
  std::string symbolPrefix, tensorPrefix;
  auto add = [&](const Name &name, std::vector<int64_t> shape,
                 bool bias = false) {
    std::string tensor = tensorPrefix + (meta ? name.meta : name.huggingFace);
    weights.push_back({symbolPrefix + name.symbol + (bias ? ".bias" : ""),
                       tensor + (bias ? ".bias" : ".weight"),
                       std::move(shape)});
  };
  auto addLinear = [&](const Name &name, int64_t n, int64_t k, bool bias) {
    add(name, {n, k});
    if (bias)
      add(name, {n}, /*bias=*/true);
  };

  int64_t hidden = config.hiddenSize, ffn = config.intermediateSize;
  int64_t qWidth = config.numQHeads * config.headDim;
  int64_t kvWidth = config.numKvHeads * config.headDim;
  add(embedTokens, {config.vocabSize, hidden});
  for (int64_t layer = 0; layer < config.numLayers; ++layer) {
    symbolPrefix = "layers." + std::to_string(layer) + ".";
    tensorPrefix = (meta ? "" : "model.") + symbolPrefix;
    add(inputNorm, {hidden});
    addLinear(qProj, qWidth, hidden, config.qkvBias);
    addLinear(kProj, kvWidth, hidden, config.qkvBias);
    addLinear(vProj, kvWidth, hidden, config.qkvBias);
    if (config.qkNorm) {
      add(qNorm, {config.headDim});
      add(kNorm, {config.headDim});
    }
    addLinear(oProj, hidden, qWidth, config.oBias);
    add(postNorm, {hidden});
    addLinear(gateProj, ffn, hidden, config.mlpBias);
    addLinear(upProj, ffn, hidden, config.mlpBias);
    addLinear(downProj, hidden, ffn, config.mlpBias);
  }
  symbolPrefix = tensorPrefix = "";
  add(finalNorm, {hidden});
  if (!config.tiedEmbeddings)
    add(lmHead, {config.vocabSize, hidden});
  return weights;
}
