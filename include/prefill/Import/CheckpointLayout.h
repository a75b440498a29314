//===- CheckpointLayout.h - do the tensors fit the model? -------*- C++ -*-===//
// A square matrix does not tell by its shape how its rows are ordered or
// whether it is transposed; the tensors' names do.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_IMPORT_CHECKPOINTLAYOUT_H
#define PREFILL_IMPORT_CHECKPOINTLAYOUT_H

#include "prefill/Import/DecoderConfig.h"
#include "prefill/checkpoint/Safetensors.h"

#include <optional>

namespace mlir::prefill {

/// Whose names the tensors carry. Refused by name, with the reason: quantised
/// weights, GPT-2's transposed Conv1D, fused Q|K|V or gate|up tensors, a mix of
/// namings, Meta's names in a model that Meta's code does not compute.
::prefill::rt::Result<TensorNaming>
detectNaming(const DecoderConfig &config,
             const ::prefill::rt::Checkpoint &checkpoint);

/// Every weight of the model is there with its shape and as f32, bf16 or f16,
/// and nothing else but `rotary_emb.inv_freq`, `rope.freqs` and, tied, an
/// `lm_head.weight` equal to the embedding.
::prefill::rt::Result<void>
checkTensors(const DecoderConfig &config, TensorNaming naming,
             const ::prefill::rt::Checkpoint &checkpoint);

/// The element type that all weights of the model share; refused when they
/// differ.
::prefill::rt::Result<DecoderConfig::ElementType>
storedElementType(const DecoderConfig &config, TensorNaming naming,
                  const ::prefill::rt::Checkpoint &checkpoint);

} // namespace mlir::prefill

#endif // PREFILL_IMPORT_CHECKPOINTLAYOUT_H
