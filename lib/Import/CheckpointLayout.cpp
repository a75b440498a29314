//===- CheckpointLayout.cpp - do the tensors fit the model? ---------------===//
#include "prefill/Import/CheckpointLayout.h"
#include "ConfigReader.h"

#include <cstring>
#include <set>

using namespace mlir::prefill;
using ::prefill::rt::Checkpoint;
using ::prefill::rt::Error;
using ::prefill::rt::ErrorCode;
using ::prefill::rt::Result;
using ::prefill::rt::StoredType;
using ::prefill::rt::stringifyShape;
using ::prefill::rt::TensorView;

namespace {

Error invalid(const std::string &message) {
  return {ErrorCode::invalidWeights, message};
}

std::string show(const TensorView &tensor) {
  return "tensor " + quoteName(tensor.name) + " " +
         stringifyShape(tensor.shape);
}

bool contains(const std::string &name, const char *part) {
  return name.find(part) != std::string::npos;
}
bool endsWith(const std::string &name, const char *suffix) {
  return std::string_view(name).ends_with(suffix);
}

/// Names whose tensors hold something else than one projection stored [N, K].
struct ForeignLayout {
  const char *part;
  const char *what;
};
constexpr ForeignLayout foreignLayouts[] = {
    {".attn.c_attn.", "is GPT-2's fused Q|K|V as a Conv1D, stored [in, out] "
                      "where a linear layer is [out, in]"},
    {".attn.c_proj.", "is a GPT-2 Conv1D, stored [in, out] where a linear "
                      "layer is [out, in]"},
    {".mlp.c_fc.", "is a GPT-2 Conv1D, stored [in, out] where a linear layer "
                   "is [out, in]"},
    {".qkv_proj.", "fuses Q, K and V (Phi-3: all rows of Q, then K, then V)"},
    {".W_pack.", "fuses Q, K and V in equal thirds (Baichuan), which GQA does "
                 "not have"},
    {".query_key_value.", "fuses Q, K and V head by head (GPT-NeoX: q, k, v of "
                          "each head; Falcon: of each KV group)"},
    {".wqkv.", "fuses Q, K and V by KV group (InternLM2: the group's queries, "
               "its key, its value)"},
    {".Wqkv.", "fuses Q, K and V in equal thirds (MPT), which GQA does not "
               "have"},
    {".gate_up_proj.", "fuses gate and up (Phi-3: all rows of gate, then up)"},
};

constexpr const char *quantisedSuffixes[] = {
    ".qweight",          ".qzeros",
    ".weight_packed",    ".weight_scale",
    ".weight_scale_inv", ".g_idx",
    ".weight.absmax",    ".SCB",
    ".input_scale",      ".weight_zero_point"};

std::string expectedProjections(const DecoderConfig &config) {
  int64_t q = config.numQHeads * config.headDim;
  int64_t kv = config.numKvHeads * config.headDim;
  return "expected q_proj " + stringifyShape({q, config.hiddenSize}) +
         ", k_proj and v_proj " + stringifyShape({kv, config.hiddenSize}) +
         ", gate_proj and up_proj " +
         stringifyShape({config.intermediateSize, config.hiddenSize}) +
         " as tensors of their own";
}

bool isFloat(StoredType type) {
  return type == StoredType::F32 || type == StoredType::BF16 ||
         type == StoredType::F16;
}

std::string andMore(size_t count) {
  return count > 1 ? " (and " + std::to_string(count - 1) + " more)" : "";
}

} // namespace

Result<TensorNaming> mlir::prefill::detectNaming(const DecoderConfig &config,
                                                 const Checkpoint &checkpoint) {
  const TensorView *meta = nullptr, *huggingFace = nullptr;
  for (const TensorView &tensor : checkpoint.tensors()) {
    // A leading dot, so that a part also matches at the beginning.
    std::string name = "." + tensor.name;
    for (const char *suffix : quantisedSuffixes)
      if (endsWith(name, suffix))
        return invalid(show(tensor) +
                       " belongs to a quantised weight, which is not "
                       "supported: expected f32, bf16 or f16 weights");
    for (const ForeignLayout &layout : foreignLayouts)
      if (contains(name, layout.part))
        return invalid(show(tensor) + " " + layout.what + "; " +
                       expectedProjections(config));
    if (contains(name, ".attention.wq.") || contains(name, ".attention.wk.") ||
        contains(name, ".tok_embeddings."))
      meta = &tensor;
    if (contains(name, ".self_attn.q_proj.") ||
        contains(name, ".self_attn.k_proj.") ||
        contains(name, ".embed_tokens."))
      huggingFace = &tensor;
  }
  if (!meta)
    return TensorNaming::huggingFace;
  if (huggingFace)
    return invalid(show(*meta) + " has Meta's name and tensor " +
                   quoteName(huggingFace->name) +
                   " Hugging Face's, whose rows are ordered differently for "
                   "RoPE: expected one naming");
  if (config.modelType != "llama" && config.modelType != "mistral")
    return invalid(show(*meta) +
                   " has Meta's name, expected Hugging Face's "
                   "in a " +
                   config.modelType + " model");
  return TensorNaming::meta;
}

static Result<void> checkWeight(const WeightSpec &weight,
                                const TensorView &tensor) {
  if (tensor.shape != weight.shape) {
    bool transposed = tensor.shape.size() == 2 && weight.shape.size() == 2 &&
                      tensor.shape[0] == weight.shape[1] &&
                      tensor.shape[1] == weight.shape[0];
    return invalid("tensor " + quoteName(weight.tensor) + " has shape " +
                   stringifyShape(tensor.shape) + ", expected " +
                   stringifyShape(weight.shape) +
                   (transposed ? ": it is stored transposed" : ""));
  }
  if (!isFloat(tensor.dtype))
    return invalid("tensor " + quoteName(weight.tensor) + " has type " +
                   ::prefill::rt::stringify(tensor.dtype) +
                   ", expected F32, BF16 or F16");
  return {};
}

/// A head beside tied embeddings: transformers 4 ignores it, 5 reads it if it
/// differs.
static Result<void> checkTiedHead(const TensorView &head,
                                  const TensorView &embedding) {
  bool equal = head.dtype == embedding.dtype && head.size == embedding.size &&
               (head.size == 0 ||
                std::memcmp(head.data, embedding.data, head.size) == 0);
  if (equal)
    return {};
  return invalid(show(head) + " differs from " + show(embedding) +
                 ", expected equal tensors or none with tie_word_embeddings "
                 "true");
}

Result<void> mlir::prefill::checkTensors(const DecoderConfig &config,
                                         TensorNaming naming,
                                         const Checkpoint &checkpoint) {
  std::vector<WeightSpec> weights = decoderWeights(config, naming);
  std::set<std::string_view> known;
  const WeightSpec *missing = nullptr;
  size_t numMissing = 0;
  for (const WeightSpec &weight : weights) {
    known.insert(weight.tensor);
    const TensorView *tensor = checkpoint.find(weight.tensor);
    if (!tensor) {
      missing = missing ? missing : &weight;
      ++numMissing;
      continue;
    }
    if (Result<void> fits = checkWeight(weight, *tensor); !fits)
      return fits;
  }
  if (missing)
    return invalid("tensor " + quoteName(missing->tensor) + " " +
                   stringifyShape(missing->shape) +
                   " is missing from the checkpoint" + andMore(numMissing));

  const TensorView *unexpected = nullptr;
  size_t numUnexpected = 0;
  std::string head =
      naming == TensorNaming::meta ? "output.weight" : "lm_head.weight";
  for (const TensorView &tensor : checkpoint.tensors()) {
    if (known.count(tensor.name) || endsWith(tensor.name, ".inv_freq") ||
        tensor.name == "rope.freqs")
      continue;
    if (config.tiedEmbeddings && tensor.name == head) {
      const TensorView &embedding = *checkpoint.find(weights.front().tensor);
      if (Result<void> tied = checkTiedHead(tensor, embedding); !tied)
        return tied;
      continue;
    }
    unexpected = unexpected ? unexpected : &tensor;
    ++numUnexpected;
  }
  if (unexpected)
    return invalid(show(*unexpected) + " is unexpected" +
                   andMore(numUnexpected) + ": a " + config.modelType +
                   " model of this config.json does not read it");
  return {};
}

Result<DecoderConfig::ElementType>
mlir::prefill::storedElementType(const DecoderConfig &config,
                                 TensorNaming naming,
                                 const Checkpoint &checkpoint) {
  const TensorView *first = nullptr;
  for (const WeightSpec &weight : decoderWeights(config, naming)) {
    const TensorView *tensor = checkpoint.find(weight.tensor);
    if (!tensor)
      continue;
    if (first && tensor->dtype != first->dtype)
      return invalid("tensor " + quoteName(first->name) + " is " +
                     ::prefill::rt::stringify(first->dtype) + " and " +
                     quoteName(tensor->name) + " is " +
                     ::prefill::rt::stringify(tensor->dtype) +
                     ": expected one type, or torch_dtype in config.json");
    first = first ? first : tensor;
  }
  switch (first ? first->dtype : StoredType::F32) {
  case StoredType::BF16:
    return DecoderConfig::ElementType::bf16;
  case StoredType::F16:
    return DecoderConfig::ElementType::f16;
  default:
    return DecoderConfig::ElementType::f32;
  }
}
