#include "core/TensorSource.h"
#include "cpu/WeightKernels.h"
#include "prefill/checkpoint/FloatConversion.h"
#include "prefill/checkpoint/JsonFile.h"
#include "prefill/checkpoint/Quote.h"
#include "prefill/checkpoint/RandomWeights.h"

#include <cstring>
#include <set>
#include <string_view>

using namespace prefill;
using namespace prefill::rt;

namespace {

template <typename Stored, float (*toFloat)(Stored)>
class StoredReader : public TensorReader {
public:
  explicit StoredReader(const std::byte *data) : data(data) {}
  void read(uint64_t begin, uint64_t count, float *out) const override {
    // The file does not promise alignment: hence memcpy element by element,
    // which compiles to vector loads.
    for (uint64_t i = 0; i < count; ++i) {
      Stored stored;
      std::memcpy(&stored, data + (begin + i) * sizeof stored, sizeof stored);
      out[i] = toFloat(stored);
    }
  }

private:
  const std::byte *data;
};

float identity(float value) { return value; }

class Bf16Reader : public TensorReader {
public:
  /// A row of the tensor has rowLength elements.
  Bf16Reader(const std::byte *data, uint64_t size, uint64_t rowLength)
      : data(data), size(size), rowBytes(rowLength * sizeof(uint16_t)) {}
  void read(uint64_t begin, uint64_t count, float *out) const override {
    uint64_t bytes = count * sizeof(uint16_t);
    uint64_t offset = begin * sizeof(uint16_t);
    // Packing goes down the rows of a block: the same place of the next row is
    // what it reads next, too far away for the CPU to guess.
    if (offset + rowBytes + bytes <= size)
      for (uint64_t line = 0; line < bytes; line += 64)
        __builtin_prefetch(data + offset + rowBytes + line, 0, 2);
    weightKernels().bf16ToF32(data + offset, static_cast<int64_t>(count), out);
  }

private:
  const std::byte *data;
  uint64_t size, rowBytes;
};

class RandomReader : public TensorReader {
public:
  explicit RandomReader(RandomTensor tensor) : tensor(tensor) {}
  void read(uint64_t begin, uint64_t count, float *out) const override {
    for (uint64_t i = 0; i < count; ++i)
      out[i] = tensor[begin + i];
  }

private:
  RandomTensor tensor;
};

bool endsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() &&
         text.substr(text.size() - suffix.size()) == suffix;
}

/// config.json must not contradict the module: two models can have equal shapes
/// and still mean different things.
Result<void> checkConfig(const std::string &directory,
                         const module::Module &file) {
  std::string path = directory + "/config.json";
  Result<nlohmann::json> config = readJsonFile(path);
  if (!config)
    return config.takeError();
  auto mismatch = [&](const char *key, const std::string &found,
                      const std::string &expected) {
    return Error{ErrorCode::invalidWeights,
                 quote(path) + ": " + key + " is " + found +
                     ", but the module was compiled for " + expected};
  };
  if (!config->is_object())
    return Error{ErrorCode::invalidWeights,
                 quote(path) + ": not a JSON object"};
  std::string expected = file.model_type()->str();
  if (auto type = config->find("model_type"); type != config->end())
    if (!type->is_string() || type->get<std::string>() != expected)
      return mismatch(
          "model_type",
          quote(type->is_string() ? type->get<std::string>() : type->dump()),
          quote(expected));
  for (auto [key, value] :
       {std::pair<const char *, int64_t>{"vocab_size", file.vocab_size()},
        {"hidden_size", file.hidden_size()},
        {"num_hidden_layers", file.num_layers()},
        {"num_attention_heads", file.num_q_heads()},
        {"num_key_value_heads", file.kv_cache()->num_kv_heads()}}) {
    auto found = config->find(key);
    if (found == config->end() || found->is_null())
      continue;
    if (!found->is_number_integer() || found->get<int64_t>() != value)
      return mismatch(key, quote(found->dump()), std::to_string(value));
  }
  return {};
}

} // namespace

Result<CheckpointSource>
rt::CheckpointSource::open(const std::string &directory,
                           const module::Module &file) {
  Result<Checkpoint> checkpoint = Checkpoint::open(directory);
  if (!checkpoint)
    return checkpoint.takeError();
  if (Result<void> ok = checkConfig(directory, file); !ok)
    return ok.takeError();
  return rt::CheckpointSource(std::move(*checkpoint), directory);
}

Result<void> rt::CheckpointSource::checkUnread(const module::Plan &plan) const {
  std::set<std::string, std::less<>> read;
  for (const module::Weight *weight : *plan.weights())
    if (const auto *source = weight->source_as_CheckpointSource())
      read.insert(source->name()->str());
  std::string unread;
  int numUnread = 0;
  for (const TensorView &tensor : checkpoint.tensors()) {
    if (read.count(tensor.name) ||
        endsWith(tensor.name, ".rotary_emb.inv_freq"))
      continue;
    // A model with tied embeddings may store them twice; another head is a
    // model that this module does not compute.
    if (tensor.name == "lm_head.weight") {
      const TensorView *embedding =
          checkpoint.find("model.embed_tokens.weight");
      if (embedding && embedding->size == tensor.size &&
          std::memcmp(embedding->data, tensor.data, tensor.size) == 0)
        continue;
      return Error{ErrorCode::invalidWeights,
                   quote(directory) +
                       ": 'lm_head.weight' differs from "
                       "'model.embed_tokens.weight', but the module was "
                       "compiled for tied embeddings, which expect them equal"};
    }
    if (++numUnread <= 3)
      unread += (unread.empty() ? "" : ", ") + quote(tensor.name);
  }
  if (numUnread)
    return Error{ErrorCode::invalidWeights,
                 quote(directory) + ": " + std::to_string(numUnread) +
                     " tensors that the module does not read: " + unread +
                     (numUnread > 3 ? ", ..." : "")};
  return {};
}

Result<std::unique_ptr<TensorReader>>
rt::CheckpointSource::find(const std::string &name,
                           const std::vector<int64_t> &shape) const {
  const TensorView *tensor = checkpoint.find(name);
  if (!tensor)
    return Error{ErrorCode::invalidWeights,
                 quote(directory) + ": tensor " + quote(name) + " is missing"};
  if (tensor->shape != shape)
    return Error{ErrorCode::invalidWeights,
                 quote(directory) + ": tensor " + quote(name) + " has shape " +
                     stringifyShape(tensor->shape) +
                     ", but the module expects " + stringifyShape(shape)};
  std::unique_ptr<TensorReader> reader;
  switch (tensor->dtype) {
  case StoredType::F32:
    reader = std::make_unique<StoredReader<float, identity>>(tensor->data);
    break;
  case StoredType::BF16:
    reader = std::make_unique<Bf16Reader>(tensor->data, tensor->size,
                                          shape.empty() ? 1 : shape.back());
    break;
  case StoredType::F16:
    reader = std::make_unique<StoredReader<uint16_t, f16ToFloat>>(tensor->data);
    break;
  default:
    return Error{ErrorCode::invalidWeights,
                 quote(directory) + ": tensor " + quote(name) + " has dtype " +
                     stringify(tensor->dtype) + ", expected F32, BF16 or F16"};
  }
  return reader;
}

uint64_t rt::CheckpointSource::totalBytes() const {
  uint64_t total = 0;
  for (const TensorView &tensor : checkpoint.tensors())
    total += tensor.size;
  return total;
}

Result<std::unique_ptr<TensorReader>>
RandomSource::find(const std::string &name,
                   const std::vector<int64_t> &shape) const {
  return std::unique_ptr<TensorReader>(
      new RandomReader(RandomTensor(seed, name, shape)));
}
