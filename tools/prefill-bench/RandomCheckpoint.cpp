#include "RandomCheckpoint.h"
#include "../prefill-run/OutputFile.h"
#include "core/TensorSource.h"
#include "prefill/checkpoint/FloatConversion.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

using namespace prefill;
using namespace prefill::bench;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::quote;
using prefill::run::OutputFile;
namespace fs = std::filesystem;

namespace {

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  uint64_t elements;
};

std::vector<Tensor> tensorsOf(const module::Plan &plan) {
  std::vector<Tensor> tensors;
  for (const module::Weight *weight : *plan.weights()) {
    const module::CheckpointSource *source =
        weight->source_as_CheckpointSource();
    if (!source)
      continue;
    Tensor tensor{source->name()->str(),
                  {weight->shape()->begin(), weight->shape()->end()},
                  1};
    for (int64_t extent : tensor.shape)
      tensor.elements *= static_cast<uint64_t>(extent);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Result<void> writeFile(const std::string &path, const std::string &text) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file)
    return file.takeError();
  if (Result<void> ok = file->write(text); !ok)
    return ok;
  return file->commit();
}

/// The format's length and header: names, shapes and places of the tensors.
std::string headerOf(const std::vector<Tensor> &tensors) {
  nlohmann::ordered_json header;
  uint64_t offset = 0;
  for (const Tensor &tensor : tensors) {
    uint64_t end = offset + 2 * tensor.elements;
    header[tensor.name] = {{"dtype", "BF16"},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(), length;
  text.resize((text.size() + 7) / 8 * 8, ' ');
  for (int byte = 0; byte < 8; ++byte)
    length += static_cast<char>(uint64_t(text.size()) >> (8 * byte));
  return length + text;
}

} // namespace

Result<void>
prefill::bench::writeRandomCheckpoint(const std::string &directory,
                                      const rt::LoadedModule &module) {
  std::string config = directory + "/config.json",
              weights = directory + "/model.safetensors";
  std::error_code failed;
  if (fs::exists(config, failed) && fs::exists(weights, failed))
    return {};
  fs::create_directories(directory, failed);
  if (failed)
    return Error{ErrorCode::io, "cannot make directory " + quote(directory) +
                                    ": " + failed.message()};
  std::vector<Tensor> tensors = tensorsOf(module.plan());
  Result<OutputFile> output = OutputFile::create(weights);
  if (!output)
    return output.takeError();
  if (Result<void> ok = output->write(headerOf(tensors)); !ok)
    return ok;
  rt::RandomSource source(1);
  std::vector<float> values(1 << 20);
  std::vector<uint16_t> bits;
  for (const Tensor &tensor : tensors) {
    auto reader = source.find(tensor.name, tensor.shape);
    if (!reader)
      return reader.takeError();
    for (uint64_t begin = 0; begin < tensor.elements; begin += values.size()) {
      uint64_t count =
          std::min<uint64_t>(values.size(), tensor.elements - begin);
      (*reader)->read(begin, count, values.data());
      bits.resize(count);
      std::transform(values.begin(), values.begin() + count, bits.begin(),
                     rt::floatToBf16);
      if (Result<void> ok = output->write(bits.data(), 2 * count); !ok)
        return ok;
    }
  }
  if (Result<void> ok = output->commit(); !ok)
    return ok;
  nlohmann::ordered_json text = {
      {"model_type", module.file().model_type()->str()}};
  return writeFile(config, text.dump(1) + "\n");
}
