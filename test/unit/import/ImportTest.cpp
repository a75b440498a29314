// What imports, and how: the parts that the golden checkpoints under lit do not
// have.
#include "prefill/Import/Import.h"
#include "TinyCheckpoint.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Import/HuggingFaceConfig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::prefill;
using nlohmann::json;
using ::prefill::test::TemporaryDirectory;
using ::prefill::test::TinyCheckpoint;
using ::testing::ElementsAre;

namespace {

DecoderConfig parse(const TinyCheckpoint &checkpoint) {
  auto parsed = parseHuggingFaceConfig(checkpoint.config, "config.json");
  EXPECT_TRUE(bool(parsed)) << (parsed ? "" : parsed.error().message);
  return parsed ? parsed->decoder : DecoderConfig();
}

class Import : public ::testing::Test {
protected:
  /// Null after a failed expectation.
  OwningOpRef<ModuleOp> import(const TinyCheckpoint &checkpoint) {
    TemporaryDirectory directory;
    checkpoint.writeTo(directory);
    auto module = importHuggingFace(&context, directory.path());
    EXPECT_TRUE(bool(module)) << (module ? "" : module.error().message);
    if (!module)
      return {};
    EXPECT_TRUE(succeeded(verify(**module)));
    return std::move(*module);
  }
  /// The weight's checkpoint name.
  static std::string source(ModuleOp module, StringRef symbol) {
    auto weight = module.lookupSymbol<WeightOp>(symbol);
    return weight ? cast<CheckpointAttr>(weight.getSource()).getName().str()
                  : "no such weight";
  }
  static RopeAttr rope(ModuleOp module) {
    RopeAttr attr;
    module.walk([&](RopeOp op) { attr = op.getRope(); });
    return attr;
  }
  static Type weightType(ModuleOp module) {
    return module.lookupSymbol<WeightOp>("norm")
        .getTensorType()
        .getElementType();
  }

  MLIRContext context{MLIRContext::Threading::DISABLED};
};

TEST(HuggingFaceConfig, HeadDimFromHiddenSizeWhenAbsentOrNull) {
  TinyCheckpoint checkpoint;
  checkpoint.config["hidden_size"] = 12;
  checkpoint.config.erase("head_dim");
  EXPECT_EQ(parse(checkpoint).headDim, 6);
  checkpoint.config["head_dim"] = nullptr;
  EXPECT_EQ(parse(checkpoint).headDim, 6);
  checkpoint.config["head_dim"] = 4;
  EXPECT_EQ(parse(checkpoint).headDim, 4);
}

TEST(HuggingFaceConfig, Qwen3HeadDimIs128WhenAbsent) {
  TinyCheckpoint checkpoint;
  checkpoint.become("qwen3", "Qwen3ForCausalLM");
  checkpoint.config.erase("head_dim");
  EXPECT_EQ(parse(checkpoint).headDim, 128);
}

TEST(HuggingFaceConfig, KvHeadsWhenAbsentAreTheClassDefault) {
  TinyCheckpoint checkpoint;
  checkpoint.config["num_attention_heads"] = 64;
  checkpoint.config.erase("num_key_value_heads");
  EXPECT_EQ(parse(checkpoint).numKvHeads, 64);
  checkpoint.become("mistral", "MistralForCausalLM");
  EXPECT_EQ(parse(checkpoint).numKvHeads, 8);
  checkpoint.become("qwen2", "Qwen2ForCausalLM");
  EXPECT_EQ(parse(checkpoint).numKvHeads, 32);
  checkpoint.config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(parse(checkpoint).numKvHeads, 64);
}

TEST(HuggingFaceConfig, DefaultsOfAbsentKeys) {
  TinyCheckpoint checkpoint;
  for (const char *key :
       {"rms_norm_eps", "rope_theta", "hidden_act", "tie_word_embeddings",
        "max_position_embeddings", "architectures"})
    checkpoint.config.erase(key);
  DecoderConfig config = parse(checkpoint);
  EXPECT_EQ(config.rmsNormEps, 1e-6);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.activation, DecoderConfig::Activation::silu);
  EXPECT_FALSE(config.tiedEmbeddings);
  EXPECT_EQ(config.maxPosition, 2048);
}

TEST(HuggingFaceConfig, NeutralForeignKeysSayNothing) {
  TinyCheckpoint checkpoint;
  checkpoint.config["pretraining_tp"] = 1;
  checkpoint.config["quantization_config"] = nullptr;
  checkpoint.config["final_logit_softcapping"] = nullptr;
  checkpoint.config["num_local_experts"] = 0;
  checkpoint.config["pruned_heads"] = json::object();
  checkpoint.config["use_cache"] = true;
  checkpoint.config["rope_interleaved"] = false;
  checkpoint.config["is_llama_config"] = true;
  checkpoint.config["attention_dropout"] = 0.1;
  checkpoint.config["rope_scaling"] = nullptr;
  EXPECT_EQ(parse(checkpoint).hiddenSize, 8);
}

TEST(HuggingFaceConfig, MistralWindow) {
  TinyCheckpoint checkpoint;
  checkpoint.become("mistral", "MistralForCausalLM");
  EXPECT_THAT(parse(checkpoint).slidingWindows, ElementsAre(4096));
  checkpoint.config["sliding_window"] = 32;
  EXPECT_THAT(parse(checkpoint).slidingWindows, ElementsAre(32));
  checkpoint.config["sliding_window"] = nullptr;
  EXPECT_THAT(parse(checkpoint).slidingWindows, ElementsAre(0));
}

TEST(HuggingFaceConfig, QwenWindowOfSomeLayers) {
  TinyCheckpoint checkpoint;
  checkpoint.become("qwen2", "Qwen2ForCausalLM");
  checkpoint.config["num_hidden_layers"] = 4;
  checkpoint.config["sliding_window"] = 32;
  EXPECT_THAT(parse(checkpoint).slidingWindows, ElementsAre(0, 0, 0, 0));
  checkpoint.config["use_sliding_window"] = true;
  EXPECT_THAT(parse(checkpoint).slidingWindows, ElementsAre(0, 0, 0, 0));
  checkpoint.config["max_window_layers"] = 3;
  EXPECT_THAT(parse(checkpoint).slidingWindows, ElementsAre(0, 0, 0, 32));
  checkpoint.config["max_window_layers"] = 0;
  EXPECT_THAT(parse(checkpoint).slidingWindows, ElementsAre(32, 32, 32, 32));
  // layer_types wins over max_window_layers.
  checkpoint.config["layer_types"] = {"sliding_attention", "full_attention",
                                      "full_attention", "sliding_attention"};
  EXPECT_THAT(parse(checkpoint).slidingWindows, ElementsAre(32, 0, 0, 32));
  checkpoint.config["sliding_window"] = nullptr;
  checkpoint.config["layer_types"] = nullptr;
  EXPECT_THAT(parse(checkpoint).slidingWindows, ElementsAre(0, 0, 0, 0));
}

TEST(HuggingFaceConfig, RopeInBothSpellings) {
  json llama3 = {{"factor", 8.0},
                 {"low_freq_factor", 1.0},
                 {"high_freq_factor", 4.0},
                 {"original_max_position_embeddings", 32}};
  TinyCheckpoint four, five;
  four.config["rope_theta"] = 500000.0;
  four.config["rope_scaling"] = llama3;
  four.config["rope_scaling"]["rope_type"] = "llama3";
  five.config.erase("rope_theta");
  five.config["rope_parameters"] = llama3;
  five.config["rope_parameters"]["rope_type"] = "llama3";
  five.config["rope_parameters"]["rope_theta"] = 500000.0;
  for (const TinyCheckpoint &checkpoint : {four, five}) {
    RopeConfig rope = parse(checkpoint).rope;
    EXPECT_EQ(rope.theta, 500000.0);
    EXPECT_EQ(rope.scaling, RopeConfig::Scaling::llama3);
    EXPECT_EQ(rope.factor, 8.0);
    EXPECT_EQ(rope.lowFreqFactor, 1.0);
    EXPECT_EQ(rope.highFreqFactor, 4.0);
    EXPECT_EQ(rope.originalMaxPosition, 32);
  }
  TinyCheckpoint old;
  old.config["rope_scaling"] = {{"type", "linear"}, {"factor", 4}};
  RopeConfig rope = parse(old).rope;
  EXPECT_EQ(rope.scaling, RopeConfig::Scaling::linear);
  EXPECT_EQ(rope.factor, 4.0);
}

TEST(HuggingFaceConfig, PartialRotary) {
  TinyCheckpoint checkpoint;
  checkpoint.config["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(parse(checkpoint).rope.rotaryDim, 2);
  checkpoint.config.erase("partial_rotary_factor");
  checkpoint.config["rope_parameters"] = {{"partial_rotary_factor", 0.5}};
  EXPECT_EQ(parse(checkpoint).rope.rotaryDim, 2);
}

TEST_F(Import, Dtype) {
  TinyCheckpoint checkpoint;
  EXPECT_TRUE(weightType(*import(checkpoint)).isBF16());
  checkpoint.config["torch_dtype"] = "float32";
  EXPECT_TRUE(weightType(*import(checkpoint)).isF32());
  checkpoint.config["torch_dtype"] = "float16";
  EXPECT_TRUE(weightType(*import(checkpoint)).isF16());
  // Without the key the weights decide.
  checkpoint.config.erase("torch_dtype");
  EXPECT_TRUE(weightType(*import(checkpoint)).isBF16());
  for (auto &[name, tensor] : checkpoint.tensors)
    tensor.dtype = "F32";
  EXPECT_TRUE(weightType(*import(checkpoint)).isF32());
}

TEST_F(Import, TiedHead) {
  TinyCheckpoint checkpoint;
  checkpoint.config["tie_word_embeddings"] = true;
  // A copy of the embedding is harmless.
  for (bool copy : {true, false}) {
    if (!copy)
      checkpoint.tensors.erase("lm_head.weight");
    OwningOpRef<ModuleOp> module = import(checkpoint);
    ASSERT_TRUE(module);
    EXPECT_EQ(source(*module, "lm_head"), "no such weight");
    module->walk([&](LMHeadOp head) {
      EXPECT_EQ(head.getWeight().getDefiningOp<GetWeightOp>().getName(),
                "embed_tokens");
    });
  }
}

TEST_F(Import, InverseFrequenciesAreHarmless) {
  TinyCheckpoint checkpoint;
  checkpoint.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{2},
                                                                        "F32"};
  EXPECT_TRUE(import(checkpoint));
}

TEST_F(Import, MetaNamesAreInterleavedRope) {
  TinyCheckpoint checkpoint;
  OwningOpRef<ModuleOp> huggingFace = import(checkpoint);
  checkpoint.useMetaNames();
  checkpoint.tensors["rope.freqs"] = {{2}, "F32"};
  OwningOpRef<ModuleOp> meta = import(checkpoint);
  ASSERT_TRUE(huggingFace && meta);
  EXPECT_FALSE(rope(*huggingFace).getInterleaved());
  EXPECT_TRUE(rope(*meta).getInterleaved());
  EXPECT_EQ(source(*meta, "layers.0.q_proj"), "layers.0.attention.wq.weight");
  EXPECT_EQ(source(*meta, "layers.0.gate_proj"),
            "layers.0.feed_forward.w1.weight");
  EXPECT_EQ(source(*meta, "layers.0.down_proj"),
            "layers.0.feed_forward.w2.weight");
  EXPECT_EQ(source(*meta, "layers.0.up_proj"),
            "layers.0.feed_forward.w3.weight");
  EXPECT_EQ(source(*meta, "layers.0.post_attention_layernorm"),
            "layers.0.ffn_norm.weight");
  EXPECT_EQ(source(*meta, "embed_tokens"), "tok_embeddings.weight");
  EXPECT_EQ(source(*meta, "lm_head"), "output.weight");
}

TEST_F(Import, GeluTanh) {
  TinyCheckpoint checkpoint;
  checkpoint.config["hidden_act"] = "gelu_pytorch_tanh";
  OwningOpRef<ModuleOp> module = import(checkpoint);
  ASSERT_TRUE(module);
  module->walk(
      [](GatedActOp op) { EXPECT_EQ(op.getKind(), GateKind::GeluTanh); });
}

TEST_F(Import, Qwen3Bias) {
  TinyCheckpoint checkpoint;
  checkpoint.become("qwen3", "Qwen3ForCausalLM");
  checkpoint.config["attention_bias"] = true;
  std::string attention = "model.layers.0.self_attn.";
  checkpoint.tensors[attention + "q_proj.bias"] = {{8}};
  checkpoint.tensors[attention + "k_proj.bias"] = {{4}};
  checkpoint.tensors[attention + "v_proj.bias"] = {{4}};
  checkpoint.tensors[attention + "o_proj.bias"] = {{8}};
  OwningOpRef<ModuleOp> module = import(checkpoint);
  ASSERT_TRUE(module);
  EXPECT_EQ(source(*module, "layers.0.o_proj.bias"), attention + "o_proj.bias");
}

// Layers know their windows one by one; the module's attribute is for all.
TEST_F(Import, WindowPerLayer) {
  TinyCheckpoint checkpoint;
  checkpoint.become("qwen2", "Qwen2ForCausalLM");
  checkpoint.config["num_hidden_layers"] = 2;
  checkpoint.config["sliding_window"] = 32;
  checkpoint.config["use_sliding_window"] = true;
  checkpoint.config["max_window_layers"] = 1;
  auto layer0 = checkpoint.tensors;
  for (const auto &[name, tensor] : layer0)
    if (name.starts_with("model.layers.0."))
      checkpoint.tensors["model.layers.1." + name.substr(15)] = tensor;
  OwningOpRef<ModuleOp> module = import(checkpoint);
  ASSERT_TRUE(module);
  std::vector<int64_t> windows;
  module->walk([&](AttentionOp op) {
    windows.push_back(op.getSlidingWindow().value_or(0));
  });
  EXPECT_THAT(windows, ElementsAre(0, 32));
  auto model = (*module)->getAttrOfType<DictionaryAttr>("prefill.model");
  EXPECT_EQ(model.getAs<IntegerAttr>("sliding_window").getInt(), 0);
}

} // namespace
