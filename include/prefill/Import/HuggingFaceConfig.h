//===- HuggingFaceConfig.h - config.json to a decoder's numbers -*- C++ -*-===//
// Follows transformers: what a key means, and what its absence means, is what
// LlamaConfig, MistralConfig, Qwen2Config and Qwen3Config (versions 4 and 5)
// make of it. A key that would change what the model computes and that is not
// understood is an error, never ignored.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_IMPORT_HUGGINGFACECONFIG_H
#define PREFILL_IMPORT_HUGGINGFACECONFIG_H

#include "prefill/Import/DecoderConfig.h"
#include "prefill/checkpoint/Result.h"

#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace mlir::prefill {

struct HuggingFaceConfig {
  /// Everything but `dtype`.
  DecoderConfig decoder;
  /// `dtype` or `torch_dtype`; without it the stored type of the weights
  /// decides, as in transformers.
  std::optional<DecoderConfig::ElementType> dtype;
};

/// `root` is the parsed file, `path` its name for messages. Errors name the
/// key, its value and what was expected: an unknown model_type or architecture,
/// quantised weights, a missing or mistyped or out-of-range size, sizes that do
/// not divide, an unknown activation, an unknown or contradictory RoPE, sliding
/// windows that say two things, and keys of variants that are not implemented.
::prefill::rt::Result<HuggingFaceConfig>
parseHuggingFaceConfig(const nlohmann::json &root, const std::string &path);

/// Reads the file and parses it.
::prefill::rt::Result<HuggingFaceConfig>
readHuggingFaceConfig(const std::string &path);

} // namespace mlir::prefill

#endif // PREFILL_IMPORT_HUGGINGFACECONFIG_H
