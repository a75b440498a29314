//===- KnownShapes.h - models whose shape is built in -----------*- C++ -*-===//
#ifndef PREFILL_IMPORT_KNOWNSHAPES_H
#define PREFILL_IMPORT_KNOWNSHAPES_H

#include "prefill/Import/DecoderConfig.h"

#include <optional>
#include <string_view>

namespace mlir::prefill {

/// The published configuration of "llama-2-7b", "llama-3-8b", "llama-3-70b",
/// "llama-3.2-1b" or "qwen2.5-0.5b", in bf16; nothing for another name.
std::optional<DecoderConfig> knownShape(std::string_view name);

/// The names, for messages.
std::vector<std::string> knownShapeNames();

} // namespace mlir::prefill

#endif // PREFILL_IMPORT_KNOWNSHAPES_H
