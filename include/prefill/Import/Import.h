//===- Import.h - models from files and from nothing ------------*- C++ -*-===//
#ifndef PREFILL_IMPORT_IMPORT_H
#define PREFILL_IMPORT_IMPORT_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "prefill/checkpoint/Result.h"

#include <optional>
#include <string>

namespace mlir::prefill {

/// The model of a Hugging Face directory (`config.json` and safetensors) at the
/// model level. Weights are named, not copied; every tensor's presence, shape
/// and type is checked. Errors: HuggingFaceConfig.h, CheckpointLayout.h and
/// checkpoint/Safetensors.h.
::prefill::rt::Result<OwningOpRef<ModuleOp>>
importHuggingFace(MLIRContext *context, const std::string &directory);

/// A known shape without a checkpoint (KnownShapes.h), with another number of
/// layers or another vocabulary if given. Weights carry Hugging Face's names.
::prefill::rt::Result<OwningOpRef<ModuleOp>>
synthesize(MLIRContext *context, const std::string &shape,
           std::optional<int64_t> numLayers, std::optional<int64_t> vocabSize);

} // namespace mlir::prefill

#endif // PREFILL_IMPORT_IMPORT_H
