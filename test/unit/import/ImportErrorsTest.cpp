// Checkpoints that must not import: each is one line that names what is wrong.
// The suite also runs under AddressSanitizer.
#include "TinyCheckpoint.h"
#include "mlir/IR/MLIRContext.h"
#include "prefill/Import/Import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

using namespace mlir::prefill;
using nlohmann::json;
using prefill::test::TemporaryDirectory;
using prefill::test::TinyCheckpoint;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

struct Broken {
  const char *name;
  std::function<void(TinyCheckpoint &)> breakIt;
  /// What the message must name: the thing, its value, what was expected.
  std::vector<const char *> names;
};

void PrintTo(const Broken &broken, std::ostream *stream) {
  *stream << broken.name;
}

/// The import's error, or "" if there is none.
std::string importError(const std::string &directory) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto module = importHuggingFace(&context, directory);
  return module ? "" : module.error().message;
}

void expectRefused(const std::string &message,
                   const std::vector<const char *> &names) {
  EXPECT_NE(message, "");
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  for (const char *name : names)
    EXPECT_THAT(message, HasSubstr(name));
}

/// Sets a key of config.json.
std::function<void(TinyCheckpoint &)> set(const char *key, json value) {
  return [=](TinyCheckpoint &checkpoint) { checkpoint.config[key] = value; };
}
std::function<void(TinyCheckpoint &)> without(const char *key) {
  return [=](TinyCheckpoint &checkpoint) { checkpoint.config.erase(key); };
}
std::function<void(TinyCheckpoint &)> asQwen2(const char *key, json value) {
  return [=](TinyCheckpoint &checkpoint) {
    checkpoint.become("qwen2", "Qwen2ForCausalLM");
    checkpoint.config[key] = value;
  };
}
/// Replaces the attention's or FFN's tensor by one of another name and shape.
std::function<void(TinyCheckpoint &)> addTensor(const char *name,
                                                std::vector<int64_t> shape) {
  return
      [=](TinyCheckpoint &checkpoint) { checkpoint.tensors[name] = {shape}; };
}

const char *q = "model.layers.0.self_attn.q_proj.weight";

class ImportError : public ::testing::TestWithParam<Broken> {};

TEST_P(ImportError, IsOneLineThatNamesIt) {
  TinyCheckpoint checkpoint;
  GetParam().breakIt(checkpoint);
  TemporaryDirectory directory;
  checkpoint.writeTo(directory);
  expectRefused(importError(directory.path()), GetParam().names);
}

const Broken configs[] = {
    {"UnknownModelType",
     set("model_type", "gpt2"),
     {"model_type is \"gpt2\"", "\"llama\", \"mistral\", \"qwen2\" or"}},
    {"NoModelType", without("model_type"), {"model_type is missing"}},
    {"ModelTypeIsNumber", set("model_type", 3), {"model_type is 3"}},
    {"UnknownArchitecture",
     set("architectures", {"LlamaModel"}),
     {"architectures is [\"LlamaModel\"]", "LlamaForCausalLM"}},
    {"ArchitectureOfAnotherType",
     set("architectures", {"MistralForCausalLM"}),
     {"MistralForCausalLM", "LlamaForCausalLM"}},
    {"ModelTypeWithLineBreak",
     set("model_type", "a\nerror: b"),
     {"model_type is \"a\\nerror: b\""}},
    {"LongModelType",
     set("model_type", std::string(100000, 'x')),
     {"xxx...", "expected"}},
    {"Quantised",
     set("quantization_config", {{"quant_method", "gptq"}}),
     {"quantization_config is {\"quant_method\":\"gptq\"}", "not supported"}},
    {"NoHiddenSize", without("hidden_size"), {"hidden_size is missing"}},
    {"HiddenSizeIsString",
     set("hidden_size", "8"),
     {"hidden_size is \"8\"", "whole number from 1"}},
    {"HiddenSizeIsFloat", set("hidden_size", 8.0), {"hidden_size is 8.0"}},
    {"HiddenSizeIsNull", set("hidden_size", nullptr), {"hidden_size is null"}},
    {"HiddenSizeIsList",
     set("hidden_size", json::array({8})),
     {"hidden_size is [8]"}},
    {"ZeroLayers", set("num_hidden_layers", 0), {"num_hidden_layers is 0"}},
    {"NegativeHeads",
     set("num_attention_heads", -2),
     {"num_attention_heads is -2", "from 1"}},
    {"HugeVocabulary",
     set("vocab_size", 18446744073709551615ull),
     {"vocab_size is 18446744073709551615", "16777216"}},
    {"HugeLayers",
     set("num_hidden_layers", 1000000000),
     {"num_hidden_layers is 1000000000", "4096"}},
    {"HugePositions",
     set("max_position_embeddings", 4294967296ll),
     {"max_position_embeddings is 4294967296"}},
    {"ZeroKvHeads",
     set("num_key_value_heads", 0),
     {"num_key_value_heads is 0"}},
    {"KvHeadsDoNotDivide",
     [](TinyCheckpoint &checkpoint) {
       checkpoint.config["num_attention_heads"] = 5;
       checkpoint.config["num_key_value_heads"] = 2;
     },
     {"num_attention_heads is 5", "multiple of num_key_value_heads (2)"}},
    {"MoreKvHeadsThanHeads",
     set("num_key_value_heads", 4),
     {"num_attention_heads is 2", "multiple of num_key_value_heads (4)"}},
    {"HeadDimZero", set("head_dim", 0), {"head_dim is 0"}},
    {"HeadDimOdd", set("head_dim", 5), {"head_dim 5", "even"}},
    {"HeadDimFromIndivisible",
     [](TinyCheckpoint &checkpoint) {
       checkpoint.config.erase("head_dim");
       checkpoint.config["num_attention_heads"] = 3;
       checkpoint.config["num_key_value_heads"] = 3;
     },
     {"hidden_size is 8", "multiple of num_attention_heads (3)"}},
    {"Qwen3HeadDimNull",
     [](TinyCheckpoint &checkpoint) {
       checkpoint.become("qwen3", "Qwen3ForCausalLM");
       checkpoint.config["head_dim"] = nullptr;
     },
     {"head_dim is null"}},
    {"EpsilonIsString", set("rms_norm_eps", "1e-5"), {"rms_norm_eps is"}},
    {"EpsilonNegative", set("rms_norm_eps", -1e-5), {"rms_norm_eps is -1e-05"}},
    {"UnknownActivation",
     set("hidden_act", "gelu"),
     {"hidden_act is \"gelu\"", "gelu_pytorch_tanh"}},
    {"TiedIsString",
     set("tie_word_embeddings", "yes"),
     {"tie_word_embeddings is \"yes\"", "true or false"}},
    {"UnknownDtype",
     set("torch_dtype", "float8_e4m3fn"),
     {"torch_dtype is \"float8_e4m3fn\"", "bfloat16"}},
    {"TwoDtypes",
     set("dtype", "float32"),
     {"dtype is \"float32\"", "torch_dtype (\"bfloat16\")"}},
    {"AttentionBiasInMistral",
     [](TinyCheckpoint &checkpoint) {
       checkpoint.become("mistral", "MistralForCausalLM");
       checkpoint.config["attention_bias"] = true;
     },
     {"attention_bias is true", "mistral"}},
    {"PretrainingTp", set("pretraining_tp", 2), {"pretraining_tp is 2"}},
    {"LogitScale", set("logit_scale", 0.0625), {"logit_scale is 0.0625"}},
    {"AttentionMultiplier",
     set("attention_multiplier", 1),
     {"attention_multiplier is 1"}},
    {"ResidualMultiplier",
     set("residual_multiplier", 0.22),
     {"residual_multiplier is 0.22"}},
    {"FinalSoftcap",
     set("final_logit_softcapping", 30.0),
     {"final_logit_softcapping is 30.0"}},
    {"AttentionSoftcap",
     set("attn_logit_softcapping", 50.0),
     {"attn_logit_softcapping is 50.0"}},
    {"Experts", set("num_local_experts", 8), {"num_local_experts is 8"}},
    {"Alibi", set("alibi", true), {"alibi is true"}},
    {"ChunkedAttention",
     set("attention_chunk_size", 8192),
     {"attention_chunk_size is 8192"}},
    {"NoRopeLayers", set("no_rope_layers", {1, 0}), {"no_rope_layers is"}},
    {"QkNormInLlama", set("qk_norm", true), {"qk_norm is true"}},
    {"OwnCode",
     set("auto_map", {{"AutoModelForCausalLM", "modeling_x.X"}}),
     {"auto_map is", "own code is not run"}},
    {"ForeignKeyWithLineBreak",
     set("num\nerror: experts", 2),
     {"num\\nerror: experts", "not supported"}},
};
INSTANTIATE_TEST_SUITE_P(Config, ImportError, ::testing::ValuesIn(configs),
                         [](const auto &info) { return info.param.name; });

const Broken ropes[] = {
    {"UnknownType",
     set("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}),
     {"rope_scaling", "rope_type is \"yarn\"", "\"llama3\""}},
    {"UnknownOldType",
     set("rope_scaling", {{"type", "dynamic"}}),
     {"type is \"dynamic\""}},
    {"TypesDisagree",
     set("rope_scaling",
         {{"type", "linear"}, {"rope_type", "llama3"}, {"factor", 2.0}}),
     {"type is \"linear\"", "rope_type (\"llama3\")"}},
    {"ScalingIsString",
     set("rope_scaling", "linear"),
     {"rope_scaling is \"linear\"", "object"}},
    {"NoFactor",
     set("rope_scaling", {{"type", "linear"}}),
     {"factor is missing"}},
    {"FactorZero",
     set("rope_scaling", {{"type", "linear"}, {"factor", 0}}),
     {"factor is 0", "above 0"}},
    {"FactorIsString",
     set("rope_scaling", {{"type", "linear"}, {"factor", "4"}}),
     {"factor is \"4\""}},
    {"Llama3WithoutOriginal",
     set("rope_scaling", {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0}}),
     {"original_max_position_embeddings is missing"}},
    {"Llama3Reversed",
     set("rope_scaling", {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 4.0},
                          {"high_freq_factor", 1.0},
                          {"original_max_position_embeddings", 32}}),
     {"high_freq_factor is 1.0", "low_freq_factor (4.0)"}},
    {"ForeignKey",
     set("rope_parameters", {{"rope_type", "default"},
                             {"rope_theta", 10000.0},
                             {"mrope_section", {1, 1}}}),
     {"'mrope_section'", "default"}},
    {"PerLayerKind",
     set("rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}),
     {"full_attention", "each kind of layer"}},
    {"ThetaDisagrees",
     set("rope_parameters", {{"rope_theta", 500000.0}}),
     {"rope_theta is 10000.0", "500000.0"}},
    {"ThetaNegative", set("rope_theta", -1.0), {"rope_theta is -1.0"}},
    {"ScalingAndParametersDisagree",
     [](TinyCheckpoint &checkpoint) {
       checkpoint.config["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
       checkpoint.config["rope_parameters"] = {{"rope_theta", 10000.0}};
     },
     {"rope_scaling is", "rope_parameters"}},
    {"PartialTooBig",
     set("partial_rotary_factor", 1.5),
     {"partial_rotary_factor is 1.5", "up to 1"}},
    {"PartialOdd",
     set("partial_rotary_factor", 0.25),
     {"head_dim 4", "1 rotated channels", "even"}},
};
INSTANTIATE_TEST_SUITE_P(Rope, ImportError, ::testing::ValuesIn(ropes),
                         [](const auto &info) { return info.param.name; });

const Broken windows[] = {
    {"InLlama", set("sliding_window", 32), {"sliding_window is 32", "llama"}},
    {"Zero",
     [](TinyCheckpoint &checkpoint) {
       checkpoint.become("mistral", "MistralForCausalLM");
       checkpoint.config["sliding_window"] = 0;
     },
     {"sliding_window is 0"}},
    {"LayerTypesTooShort",
     asQwen2("layer_types", json::array()),
     {"layer_types is []", "num_hidden_layers (1)"}},
    {"LayerTypesUnknown",
     asQwen2("layer_types", {"chunked_attention"}),
     {"chunked_attention", "full_attention"}},
    {"LayerTypesWithoutWindow",
     asQwen2("layer_types", {"sliding_attention"}),
     {"layer_types[0] is \"sliding_attention\"", "full_attention"}},
    {"LayerTypesInMistral",
     [](TinyCheckpoint &checkpoint) {
       checkpoint.become("mistral", "MistralForCausalLM");
       checkpoint.config["sliding_window"] = 32;
       checkpoint.config["layer_types"] = {"full_attention"};
     },
     {"layer_types is [\"full_attention\"]", "sliding_attention"}},
    {"UseIsNumber",
     asQwen2("use_sliding_window", 1),
     {"use_sliding_window is 1", "true or false"}},
};
INSTANTIATE_TEST_SUITE_P(Window, ImportError, ::testing::ValuesIn(windows),
                         [](const auto &info) { return info.param.name; });

const Broken layouts[] = {
    {"Missing",
     [](TinyCheckpoint &checkpoint) { checkpoint.tensors.erase(q); },
     {"'model.layers.0.self_attn.q_proj.weight' [8, 8]", "missing"}},
    {"MissingManyLayers",
     set("num_hidden_layers", 3),
     {"'model.layers.1.input_layernorm.weight' [8]", "missing",
      "(and 17 more)"}},
    {"MissingHead",
     [](TinyCheckpoint &checkpoint) {
       checkpoint.tensors.erase("lm_head.weight");
     },
     {"'lm_head.weight' [16, 8]", "missing"}},
    {"MissingBias",
     set("mlp_bias", true),
     {"'model.layers.0.mlp.gate_proj.bias' [12]", "missing"}},
    {"Unexpected",
     addTensor("model.layers.0.self_attn.q_proj.bias", {8}),
     {"'model.layers.0.self_attn.q_proj.bias' [8]", "unexpected"}},
    {"UnexpectedNameWithLineBreak",
     addTensor("a\nerror: b", {1}),
     {"'a\\nerror: b' [1]", "unexpected"}},
    {"WrongShape", addTensor(q, {4, 8}), {q, "[4, 8]", "expected [8, 8]"}},
    {"WrongRank", addTensor(q, {64}), {q, "[64]", "expected [8, 8]"}},
    {"Transposed",
     addTensor("model.layers.0.mlp.up_proj.weight", {8, 12}),
     {"up_proj.weight'", "[8, 12]", "expected [12, 8]", "transposed"}},
    {"KvHeadsRepeated",
     addTensor("model.layers.0.self_attn.k_proj.weight", {8, 8}),
     {"k_proj.weight'", "[8, 8]", "expected [4, 8]"}},
    {"WrongType",
     [](TinyCheckpoint &checkpoint) { checkpoint.tensors[q].dtype = "F64"; },
     {q, "F64", "expected F32, BF16 or F16"}},
    {"IntegerType",
     [](TinyCheckpoint &checkpoint) { checkpoint.tensors[q].dtype = "I8"; },
     {q, "I8"}},
    {"QuantisedTensor",
     addTensor("model.layers.0.self_attn.q_proj.qweight", {1, 8}),
     {"q_proj.qweight'", "quantised"}},
    {"Phi3Fused",
     addTensor("model.layers.0.self_attn.qkv_proj.weight", {16, 8}),
     {"qkv_proj.weight' [16, 8]", "fuses Q, K and V", "q_proj [8, 8]",
      "k_proj and v_proj [4, 8]"}},
    {"BaichuanFused",
     addTensor("model.layers.0.self_attn.W_pack.weight", {24, 8}),
     {"W_pack.weight'", "thirds"}},
    {"NeoXFused",
     addTensor("h.0.query_key_value.weight", {16, 8}),
     {"query_key_value.weight'", "head by head"}},
    {"InternLM2Fused",
     addTensor("model.layers.0.attention.wqkv.weight", {16, 8}),
     {"wqkv.weight'", "KV group"}},
    {"GateUpFused",
     addTensor("model.layers.0.mlp.gate_up_proj.weight", {24, 8}),
     {"gate_up_proj.weight'", "fuses gate and up"}},
    {"Gpt2Conv1D",
     addTensor("transformer.h.0.attn.c_attn.weight", {8, 24}),
     {"c_attn.weight' [8, 24]", "Conv1D", "[in, out]"}},
    {"Gpt2Conv1DWithoutPrefix",
     addTensor("h.0.mlp.c_fc.weight", {8, 32}),
     {"c_fc.weight'", "Conv1D"}},
    {"MetaAndHuggingFaceMixed",
     addTensor("layers.0.attention.wq.weight", {8, 8}),
     {"'layers.0.attention.wq.weight'", "Meta", "RoPE"}},
    {"MetaNamesInQwen",
     [](TinyCheckpoint &checkpoint) {
       checkpoint.become("qwen2", "Qwen2ForCausalLM");
       checkpoint.useMetaNames();
       std::erase_if(checkpoint.tensors, [](const auto &tensor) {
         return tensor.first.starts_with("model.");
       });
     },
     {"Meta", "qwen2"}},
    {"TiedHeadDiffers",
     [](TinyCheckpoint &checkpoint) {
       checkpoint.config["tie_word_embeddings"] = true;
       checkpoint.tensors["lm_head.weight"].fill = 1;
     },
     {"'lm_head.weight' [16, 8]", "differs", "tie_word_embeddings"}},
    {"TypesDifferWithoutDtype",
     [](TinyCheckpoint &checkpoint) {
       checkpoint.config.erase("torch_dtype");
       checkpoint.tensors["model.norm.weight"].dtype = "F32";
     },
     {"BF16", "'model.norm.weight' is F32", "torch_dtype"}},
};
INSTANTIATE_TEST_SUITE_P(Layout, ImportError, ::testing::ValuesIn(layouts),
                         [](const auto &info) { return info.param.name; });

// What is broken before there is an object to look into.
TEST(ImportErrorFiles, ConfigIsNotAnObject) {
  TinyCheckpoint checkpoint;
  TemporaryDirectory directory;
  checkpoint.writeTo(directory);
  for (const char *text : {"[]", "3", "null", "\"llama\""}) {
    directory.write("config.json", text);
    expectRefused(importError(directory.path()),
                  {"config.json", text, "expected an object"});
  }
}

TEST(ImportErrorFiles, ConfigIsNotJson) {
  TinyCheckpoint checkpoint;
  TemporaryDirectory directory;
  checkpoint.writeTo(directory);
  std::string whole = checkpoint.config.dump();
  for (size_t length :
       {size_t(0), size_t(1), whole.size() / 2, whole.size() - 1}) {
    directory.write("config.json", whole.substr(0, length));
    expectRefused(importError(directory.path()), {"config.json"});
  }
  directory.write("config.json", "{\"hidden_size\": 1, \"hidden_size\": 2}");
  expectRefused(importError(directory.path()),
                {"config.json", "hidden_size", "twice"});
  directory.write("config.json", "{\"rms_norm_eps\": 1e999}");
  expectRefused(importError(directory.path()), {"config.json"});
  directory.write("config.json", std::string(100000, '['));
  expectRefused(importError(directory.path()), {"config.json"});
}

TEST(ImportErrorFiles, NoDirectory) {
  TemporaryDirectory directory;
  expectRefused(importError(directory.path() + "/nothing"), {"nothing"});
}

TEST(ImportErrorFiles, NoWeights) {
  TinyCheckpoint checkpoint;
  TemporaryDirectory directory;
  directory.write("config.json", checkpoint.config.dump());
  expectRefused(importError(directory.path()), {"model.safetensors"});
  directory.write("pytorch_model.bin", "PK");
  expectRefused(importError(directory.path()),
                {"'pytorch_model.bin'", "pickle", "expected safetensors"});
}

TEST(ImportErrorFiles, MetaDirectory) {
  TemporaryDirectory directory;
  directory.write("params.json", "{\"dim\": 8}");
  directory.write("consolidated.00.pth", "PK");
  expectRefused(importError(directory.path()),
                {"params.json", "Meta", "expected config.json"});
}

TEST(ImportErrorFiles, TruncatedWeights) {
  TinyCheckpoint checkpoint;
  TemporaryDirectory directory;
  checkpoint.writeTo(directory);
  std::string whole = checkpoint.safetensors();
  for (size_t length : {size_t(0), size_t(7), size_t(100), whole.size() - 1}) {
    directory.write("model.safetensors", whole.substr(0, length));
    expectRefused(importError(directory.path()), {"model.safetensors"});
  }
}

} // namespace
