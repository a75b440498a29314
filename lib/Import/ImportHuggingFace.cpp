//===- ImportHuggingFace.cpp - a Hugging Face directory -------------------===//
#include "prefill/Import/CheckpointLayout.h"
#include "prefill/Import/DecoderBuilder.h"
#include "prefill/Import/HuggingFaceConfig.h"
#include "prefill/Import/Import.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace mlir::prefill;
using ::prefill::rt::Checkpoint;
using ::prefill::rt::ErrorCode;
using ::prefill::rt::Result;

static bool hasFile(const std::string &directory, StringRef name) {
  return llvm::sys::fs::exists(directory + "/" + name);
}

/// The first file of the directory, by name, that ends with `suffix`.
static std::string findFile(const std::string &directory, StringRef suffix) {
  std::error_code error;
  std::string first;
  for (llvm::sys::fs::directory_iterator it(directory, error), end;
       it != end && !error; it.increment(error)) {
    StringRef name = llvm::sys::path::filename(it->path());
    if (name.ends_with(suffix) && (first.empty() || name < first))
      first = name.str();
  }
  return first;
}

/// Directories in formats that are not read, by the files they hold.
static Result<void> refuseOtherFormats(const std::string &directory) {
  auto refuse = [&](const Twine &why) {
    return ::prefill::rt::Error{ErrorCode::unsupported,
                                ("'" + Twine(directory) + "' " + why).str()};
  };
  bool hasSafetensors = hasFile(directory, "model.safetensors") ||
                        hasFile(directory, "model.safetensors.index.json");
  if (hasFile(directory, "params.json") && !hasFile(directory, "config.json"))
    return refuse("holds params.json and no config.json, as Meta's own "
                  "checkpoints do: expected config.json beside the weights as "
                  "model.safetensors (Meta's tensor names are understood)");
  if (hasSafetensors)
    return {};
  for (StringRef suffix : {".pth", ".bin", ".pt"}) {
    std::string pickle = findFile(directory, suffix);
    if (!pickle.empty())
      return refuse("holds '" + pickle +
                    "' and no model.safetensors: a Python pickle can run code "
                    "and is not read, expected safetensors");
  }
  std::string gguf = findFile(directory, ".gguf");
  if (!gguf.empty())
    return refuse("holds '" + gguf +
                  "' and no model.safetensors: expected safetensors");
  return {};
}

Result<OwningOpRef<ModuleOp>>
mlir::prefill::importHuggingFace(MLIRContext *context,
                                 const std::string &directory) {
  if (Result<void> known = refuseOtherFormats(directory); !known)
    return known.takeError();
  std::string path = directory + "/config.json";
  Result<HuggingFaceConfig> parsed = readHuggingFaceConfig(path);
  if (!parsed)
    return parsed.takeError();
  DecoderConfig &config = parsed->decoder;
  Result<Checkpoint> checkpoint = Checkpoint::open(directory);
  if (!checkpoint)
    return checkpoint.takeError();
  Result<TensorNaming> naming = detectNaming(config, *checkpoint);
  if (!naming)
    return naming.takeError();
  if (Result<void> fits = checkTensors(config, *naming, *checkpoint); !fits)
    return fits.takeError();
  if (parsed->dtype) {
    config.dtype = *parsed->dtype;
  } else {
    auto stored = storedElementType(config, *naming, *checkpoint);
    if (!stored)
      return stored.takeError();
    config.dtype = *stored;
  }
  return buildDecoder(context, config, *naming);
}
