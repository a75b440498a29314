//===- DecoderConfig.h - what an importer must know -------------*- C++ -*-===//
// The numbers that fix a decoder's dataflow, whatever file they came from, and
// the list of its weights. No MLIR, no JSON.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_IMPORT_DECODERCONFIG_H
#define PREFILL_IMPORT_DECODERCONFIG_H

#include <cstdint>
#include <string>
#include <vector>

namespace mlir::prefill {

/// Rotary embedding as in #prefill.rope.
struct RopeConfig {
  enum class Scaling { none, linear, llama3 };
  double theta = 10000.0;
  /// Leading channels of a head that rotate: even, 2 to head_dim.
  int64_t rotaryDim = 0;
  /// Pairs are (2i, 2i + 1) instead of (i, i + rotaryDim / 2).
  bool interleaved = false;
  Scaling scaling = Scaling::none;
  double factor = 1.0;
  double lowFreqFactor = 1.0;
  double highFreqFactor = 1.0;
  int64_t originalMaxPosition = 0;
};

/// A pre-norm decoder with RMSNorm, RoPE, grouped-query attention and a gated
/// FFN (LLaMA, Touvron et al. 2023, and its relatives).
struct DecoderConfig {
  enum class ElementType { f32, bf16, f16 };
  enum class Activation { silu, geluTanh };

  std::string modelType; ///< "llama", "mistral", "qwen2", "qwen3"
  int64_t vocabSize = 0;
  int64_t hiddenSize = 0;
  int64_t intermediateSize = 0;
  int64_t numLayers = 0;
  int64_t numQHeads = 0;
  int64_t numKvHeads = 0; ///< divides numQHeads
  int64_t headDim = 0;
  int64_t maxPosition = 0;
  double rmsNormEps = 0;
  RopeConfig rope;
  Activation activation = Activation::silu;
  bool qkvBias = false;
  bool oBias = false;
  bool mlpBias = false;
  bool qkNorm = false; ///< RMSNorm of each head of Q and K before RoPE
  bool tiedEmbeddings = false;
  /// For each layer: keys that a row sees, its own included; 0 means all.
  std::vector<int64_t> slidingWindows;
  ElementType dtype = ElementType::bf16;
};

/// Whose names the checkpoint's tensors carry. The name decides the order of
/// Q's and K's rows: Hugging Face permuted them so that RoPE pairs (i, i +
/// head_dim / 2), Meta's own files keep pairs of neighbours.
enum class TensorNaming { huggingFace, meta };

/// One weight of the model.
struct WeightSpec {
  std::string symbol;         ///< "layers.0.q_proj", the prefill.weight
  std::string tensor;         ///< "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape; ///< as stored; matrices are [N, K]
};

/// Every weight that a model of this shape reads, in the order of use. A tied
/// head has no weight of its own.
std::vector<WeightSpec> decoderWeights(const DecoderConfig &config,
                                       TensorNaming naming);

} // namespace mlir::prefill

#endif // PREFILL_IMPORT_DECODERCONFIG_H
