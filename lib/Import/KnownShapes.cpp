//===- KnownShapes.cpp - models whose shape is built in -------------------===//
// Numbers of the models' published config.json files.
//===----------------------------------------------------------------------===//
#include "prefill/Import/KnownShapes.h"

using namespace mlir::prefill;

namespace {

DecoderConfig llama2_7b() {
  DecoderConfig config;
  config.modelType = "llama";
  config.vocabSize = 32000;
  config.hiddenSize = 4096;
  config.intermediateSize = 11008;
  config.numLayers = 32;
  config.numQHeads = config.numKvHeads = 32;
  config.headDim = 128;
  config.maxPosition = 4096;
  config.rmsNormEps = 1e-5;
  config.rope.theta = 10000.0;
  return config;
}

DecoderConfig llama3_8b() {
  DecoderConfig config;
  config.modelType = "llama";
  config.vocabSize = 128256;
  config.hiddenSize = 4096;
  config.intermediateSize = 14336;
  config.numLayers = 32;
  config.numQHeads = 32;
  config.numKvHeads = 8;
  config.headDim = 128;
  config.maxPosition = 8192;
  config.rmsNormEps = 1e-5;
  config.rope.theta = 500000.0;
  return config;
}

DecoderConfig llama3_70b() {
  DecoderConfig config = llama3_8b();
  config.hiddenSize = 8192;
  config.intermediateSize = 28672;
  config.numLayers = 80;
  config.numQHeads = 64;
  return config;
}

DecoderConfig llama32_1b() {
  DecoderConfig config;
  config.modelType = "llama";
  config.vocabSize = 128256;
  config.hiddenSize = 2048;
  config.intermediateSize = 8192;
  config.numLayers = 16;
  config.numQHeads = 32;
  config.numKvHeads = 8;
  config.headDim = 64;
  config.maxPosition = 131072;
  config.rmsNormEps = 1e-5;
  config.rope.theta = 500000.0;
  config.rope.scaling = RopeConfig::Scaling::llama3;
  config.rope.factor = 32.0;
  config.rope.lowFreqFactor = 1.0;
  config.rope.highFreqFactor = 4.0;
  config.rope.originalMaxPosition = 8192;
  config.tiedEmbeddings = true;
  return config;
}

DecoderConfig qwen25_05b() {
  DecoderConfig config;
  config.modelType = "qwen2";
  config.vocabSize = 151936;
  config.hiddenSize = 896;
  config.intermediateSize = 4864;
  config.numLayers = 24;
  config.numQHeads = 14;
  config.numKvHeads = 2;
  config.headDim = 64;
  config.maxPosition = 32768;
  config.rmsNormEps = 1e-6;
  config.rope.theta = 1000000.0;
  config.qkvBias = true;
  config.tiedEmbeddings = true;
  return config;
}

struct KnownShape {
  const char *name;
  DecoderConfig (*config)();
};
constexpr KnownShape shapes[] = {{"llama-2-7b", llama2_7b},
                                 {"llama-3-8b", llama3_8b},
                                 {"llama-3-70b", llama3_70b},
                                 {"llama-3.2-1b", llama32_1b},
                                 {"qwen2.5-0.5b", qwen25_05b}};

} // namespace

std::optional<DecoderConfig> mlir::prefill::knownShape(std::string_view name) {
  for (const KnownShape &shape : shapes) {
    if (name != shape.name)
      continue;
    DecoderConfig config = shape.config();
    config.rope.rotaryDim = config.headDim;
    config.slidingWindows.assign(config.numLayers, 0);
    return config;
  }
  return std::nullopt;
}

std::vector<std::string> mlir::prefill::knownShapeNames() {
  std::vector<std::string> names;
  for (const KnownShape &shape : shapes)
    names.push_back(shape.name);
  return names;
}
