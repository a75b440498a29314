//===- Synthesize.cpp - a known shape without a checkpoint ----------------===//
#include "prefill/Import/DecoderBuilder.h"
#include "prefill/Import/Import.h"
#include "prefill/Import/KnownShapes.h"
#include "prefill/Import/Limits.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::prefill;
using ::prefill::rt::Error;
using ::prefill::rt::ErrorCode;
using ::prefill::rt::Result;

static Error outOfRange(const char *what, int64_t value, int64_t limit) {
  return {ErrorCode::invalidArgument,
          std::string(what) + " is " + std::to_string(value) +
              ", expected 1 to " + std::to_string(limit)};
}

Result<OwningOpRef<ModuleOp>>
mlir::prefill::synthesize(MLIRContext *context, const std::string &shape,
                          std::optional<int64_t> numLayers,
                          std::optional<int64_t> vocabSize) {
  std::optional<DecoderConfig> config = knownShape(shape);
  if (!config)
    return Error{ErrorCode::invalidArgument,
                 "unknown shape '" + shape + "', expected one of " +
                     llvm::join(knownShapeNames(), ", ")};
  if (numLayers) {
    if (*numLayers < 1 || *numLayers > maxNumLayers)
      return outOfRange("--layers", *numLayers, maxNumLayers);
    config->numLayers = *numLayers;
    config->slidingWindows.assign(*numLayers, 0);
  }
  if (vocabSize) {
    if (*vocabSize < 1 || *vocabSize > maxVocabSize)
      return outOfRange("--vocab", *vocabSize, maxVocabSize);
    config->vocabSize = *vocabSize;
  }
  return buildDecoder(context, *config, TensorNaming::huggingFace);
}
