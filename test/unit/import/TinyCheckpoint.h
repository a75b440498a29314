// A checkpoint of a few hundred bytes that imports, to be broken in one place.
#ifndef PREFILL_TEST_UNIT_IMPORT_TINYCHECKPOINT_H
#define PREFILL_TEST_UNIT_IMPORT_TINYCHECKPOINT_H

#include "../runtime/SafetensorsFile.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace prefill::test {

struct TinyTensor {
  std::vector<int64_t> shape;
  std::string dtype = "BF16";
  char fill = 0;

  uint64_t bytes() const {
    uint64_t count = dtype == "F32" ? 4 : dtype == "F64" ? 8 : 2;
    if (dtype == "I8" || dtype == "U8")
      count = 1;
    for (int64_t dim : shape)
      count *= dim;
    return count;
  }
};

/// One layer, hidden size 8, 2 query heads on 1 KV head of dimension 4,
/// intermediate size 12, vocabulary 16.
struct TinyCheckpoint {
  nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                           {"model_type", "llama"},
                           {"vocab_size", 16},
                           {"hidden_size", 8},
                           {"intermediate_size", 12},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", 2},
                           {"num_key_value_heads", 1},
                           {"head_dim", 4},
                           {"hidden_act", "silu"},
                           {"max_position_embeddings", 64},
                           {"rms_norm_eps", 1e-5},
                           {"rope_theta", 10000.0},
                           {"tie_word_embeddings", false},
                           {"torch_dtype", "bfloat16"}};
  std::map<std::string, TinyTensor> tensors = {
      {"model.embed_tokens.weight", {{16, 8}}},
      {"model.layers.0.input_layernorm.weight", {{8}}},
      {"model.layers.0.self_attn.q_proj.weight", {{8, 8}}},
      {"model.layers.0.self_attn.k_proj.weight", {{4, 8}}},
      {"model.layers.0.self_attn.v_proj.weight", {{4, 8}}},
      {"model.layers.0.self_attn.o_proj.weight", {{8, 8}}},
      {"model.layers.0.post_attention_layernorm.weight", {{8}}},
      {"model.layers.0.mlp.gate_proj.weight", {{12, 8}}},
      {"model.layers.0.mlp.up_proj.weight", {{12, 8}}},
      {"model.layers.0.mlp.down_proj.weight", {{8, 12}}},
      {"model.norm.weight", {{8}}},
      {"lm_head.weight", {{16, 8}}}};

  /// Another of the four families, with what its class adds.
  void become(const std::string &modelType, const std::string &architecture) {
    config["model_type"] = modelType;
    config["architectures"] = {architecture};
    std::string attention = "model.layers.0.self_attn.";
    if (modelType == "qwen2") {
      tensors[attention + "q_proj.bias"] = {{8}};
      tensors[attention + "k_proj.bias"] = {{4}};
      tensors[attention + "v_proj.bias"] = {{4}};
    }
    if (modelType == "qwen3") {
      tensors[attention + "q_norm.weight"] = {{4}};
      tensors[attention + "k_norm.weight"] = {{4}};
    }
  }

  void rename(const std::string &from, const std::string &to) {
    auto node = tensors.extract(from);
    node.key() = to;
    tensors.insert(std::move(node));
  }

  /// Meta's names for the same tensors.
  void useMetaNames() {
    rename("model.embed_tokens.weight", "tok_embeddings.weight");
    rename("model.norm.weight", "norm.weight");
    rename("lm_head.weight", "output.weight");
    const char *names[][2] = {
        {"input_layernorm", "attention_norm"},
        {"self_attn.q_proj", "attention.wq"},
        {"self_attn.k_proj", "attention.wk"},
        {"self_attn.v_proj", "attention.wv"},
        {"self_attn.o_proj", "attention.wo"},
        {"post_attention_layernorm", "ffn_norm"},
        {"mlp.gate_proj", "feed_forward.w1"},
        {"mlp.down_proj", "feed_forward.w2"},
        {"mlp.up_proj", "feed_forward.w3"},
    };
    for (auto [from, to] : names)
      rename(std::string("model.layers.0.") + from + ".weight",
             std::string("layers.0.") + to + ".weight");
  }

  std::string safetensors() const {
    nlohmann::json header = nlohmann::json::object();
    std::string data;
    for (const auto &[name, tensor] : tensors) {
      uint64_t begin = data.size();
      data.append(tensor.bytes(), tensor.fill);
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {begin, data.size()}}};
    }
    return safetensorsFile(header.dump(), data);
  }

  void writeTo(const TemporaryDirectory &directory) const {
    directory.write("config.json", config.dump());
    directory.write("model.safetensors", safetensors());
  }
};

} // namespace prefill::test

#endif // PREFILL_TEST_UNIT_IMPORT_TINYCHECKPOINT_H
