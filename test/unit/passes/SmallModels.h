//===- SmallModels.h - what the passes' equivalence tests run -*- C++ -*-===//
#ifndef PREFILL_TEST_UNIT_PASSES_SMALLMODELS_H
#define PREFILL_TEST_UNIT_PASSES_SMALLMODELS_H

#include "mlir/Pass/Pass.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Import/DecoderBuilder.h"

namespace mlir::prefill {

struct GraphPass {
  const char *flag;
  std::unique_ptr<Pass> (*create)();
};

// As in lib/Pipelines.
inline const GraphPass kGraphPasses[] = {
    {"hoist-row-selection", createHoistRowSelectionPass},
    {"fold-scale", createFoldScalePass},
    {"fuse-qkv-projection", createFuseQKVProjectionPass},
    {"fuse-gate-up", [] { return createFuseGateUpPass(); }},
    {"fold-norm", createFoldNormPass},
    {"fold-kv-append-into-epilogue", createFoldKVAppendIntoEpiloguePass},
    {"fold-residual-into-epilogue", createFoldResidualIntoEpiloguePass},
    {"fold-activation-into-epilogue", createFoldActivationIntoEpiloguePass},
    {"erase-unused-weights", createEraseUnusedWeightsPass},
};
inline constexpr unsigned kNumPasses = std::size(kGraphPasses);
inline constexpr unsigned kAllPasses = (1u << kNumPasses) - 1;

/// Three query heads on one KV head, two layers.
inline DecoderConfig smallModel() {
  DecoderConfig config;
  config.modelType = "llama";
  config.vocabSize = 61;
  config.hiddenSize = 24;
  config.intermediateSize = 40; // no multiple of the interleaving's 32
  config.numLayers = 2;
  config.numQHeads = 3;
  config.numKvHeads = 1;
  config.headDim = 8;
  config.maxPosition = 64;
  config.rmsNormEps = 1e-5;
  config.rope.rotaryDim = 8;
  config.slidingWindows = {0, 0};
  config.dtype = DecoderConfig::ElementType::f32;
  return config;
}

struct ModelCase {
  const char *name;
  void (*change)(DecoderConfig &);
};

inline const ModelCase kModels[] = {
    {"mqa", [](DecoderConfig &) {}},
    {"mha", [](DecoderConfig &c) { c.numKvHeads = 3; }},
    {"gqa3",
     [](DecoderConfig &c) {
       c.numQHeads = 6;
       c.numKvHeads = 2;
     }},
    {"biases",
     [](DecoderConfig &c) { c.qkvBias = c.oBias = c.mlpBias = true; }},
    {"qk_norm", [](DecoderConfig &c) { c.qkNorm = c.qkvBias = true; }},
    {"window", [](DecoderConfig &c) { c.slidingWindows = {3, 0}; }},
    {"tied", [](DecoderConfig &c) { c.tiedEmbeddings = true; }},
    {"interleaved_rope", [](DecoderConfig &c) { c.rope.interleaved = true; }},
    {"partial_rope", [](DecoderConfig &c) { c.rope.rotaryDim = 4; }},
    {"gelu_bf16",
     [](DecoderConfig &c) {
       c.activation = DecoderConfig::Activation::geluTanh;
       c.dtype = DecoderConfig::ElementType::bf16;
     }},
};

} // namespace mlir::prefill

#endif // PREFILL_TEST_UNIT_PASSES_SMALLMODELS_H
