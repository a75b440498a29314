//===- HuggingFaceRope.h - the RoPE part of config.json ---------*- C++ -*-===//
#ifndef PREFILL_LIB_IMPORT_HUGGINGFACEROPE_H
#define PREFILL_LIB_IMPORT_HUGGINGFACEROPE_H

#include "ConfigReader.h"
#include "prefill/Import/DecoderConfig.h"

namespace mlir::prefill {

/// Reads `rope_theta`, `partial_rotary_factor` and `rope_scaling` (transformers
/// 4) or `rope_parameters` (5). Refused: types other than default, linear and
/// llama3, keys that their type does not have, parameters for each kind of
/// layer, and two places that say different things.
::prefill::rt::Result<RopeConfig>
parseHuggingFaceRope(const nlohmann::json &root, int64_t headDim,
                     const std::string &path);

} // namespace mlir::prefill

#endif // PREFILL_LIB_IMPORT_HUGGINGFACEROPE_H
