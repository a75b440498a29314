//===- DecoderBuilder.h - a decoder at the model level ----------*- C++ -*-===//
// The one place that writes model-level IR: every importer and every
// synthesized shape goes through it.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_IMPORT_DECODERBUILDER_H
#define PREFILL_IMPORT_DECODERBUILDER_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "prefill/Import/DecoderConfig.h"

namespace mlir::prefill {

/// The module: `prefill.model` as attribute, one prefill.weight for each of
/// decoderWeights(config, naming), and the function
/// `@prefill(%batch, one !prefill.kv_cache for each layer)
///    -> (f32 [R, vocab], the caches)`.
/// The caches are `contiguous` blocks of max_position tokens in the model's
/// dtype. `config` must be consistent, as the parsers leave it; the module then
/// passes the verifier. Locations name the part of the model ("layers.0").
OwningOpRef<ModuleOp> buildDecoder(MLIRContext *context,
                                   const DecoderConfig &config,
                                   TensorNaming naming);

} // namespace mlir::prefill

#endif // PREFILL_IMPORT_DECODERBUILDER_H
