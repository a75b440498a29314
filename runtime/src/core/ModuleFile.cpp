#include "core/ModuleFile.h"
#include "core/KVCacheLayout.h"
#include "prefill/checkpoint/Quote.h"
#include "prefill/module/ModuleChecksum.h"

#include <cinttypes>
#include <cstdio>
#include <limits>
#include <optional>

using namespace prefill;
using namespace prefill::rt;

namespace {

// Limits far above any model and far below an overflow: with them, products of
// two extents fit in 64 bits.
constexpr int64_t maxInt32 = std::numeric_limits<int32_t>::max();

bool isFloat(module::DType dtype) {
  return dtype == module::DType::f32 || dtype == module::DType::bf16 ||
         dtype == module::DType::f16;
}

std::string hex(uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof text, "0x%016" PRIx64, value);
  return text;
}

/// Before anything else: what the rest of the file looks like is the version's.
Result<void> verifyVersion(const uint8_t *bytes, uint64_t size) {
  flatbuffers::Verifier verifier(bytes, size);
  const auto *root = flatbuffers::GetRoot<flatbuffers::Table>(bytes);
  if (!root->VerifyTableStart(verifier) ||
      !root->VerifyField<int32_t>(verifier, module::Module::VT_FORMAT_VERSION,
                                  sizeof(int32_t)))
    return invalidModule(
        "the file is truncated or damaged (FlatBuffers verification failed)");
  int32_t version =
      root->GetField<int32_t>(module::Module::VT_FORMAT_VERSION, 0);
  if (version != moduleFormatVersion)
    return invalidModule("format version " + std::to_string(version) +
                         ", this runtime reads version " +
                         std::to_string(moduleFormatVersion) +
                         " (compile the model again)");
  return {};
}

Result<void> verifyChecksum(const module::Module &file, const uint8_t *bytes,
                            uint64_t size) {
  std::optional<size_t> at = module::checksumOffset(bytes);
  if (!at)
    return invalidModule("the file is damaged: it has no checksum");
  uint64_t checksum = module::moduleChecksum(bytes, size, *at);
  if (checksum != file.checksum())
    return invalidModule("the file is damaged: checksum " + hex(checksum) +
                         ", expected " + hex(file.checksum()));
  return {};
}

Result<void> verifyModel(const module::Module &file) {
  if (!isFloat(file.dtype()))
    return invalidModule("dtype is " + std::to_string(int(file.dtype())) +
                         ", expected f32, bf16 or f16");
  struct {
    const char *name;
    int64_t value, low, high;
  } ranges[] = {
      {"vocab_size", file.vocab_size(), 1, maxInt32},
      {"hidden_size", file.hidden_size(), 1, maxInt32},
      {"num_layers", file.num_layers(), 1, 100000},
      {"num_q_heads", file.num_q_heads(), 1, 1 << 20},
      {"max_seq", file.max_seq(), 1, maxInt32},
      {"sliding_window", file.sliding_window(), 0, maxInt32},
      {"flops_per_token", file.flops_per_token(), 0, int64_t(1) << 56},
      {"flops_per_logit_row", file.flops_per_logit_row(), 0, int64_t(1) << 56},
      {"attention_flops_per_pair", file.attention_flops_per_pair(), 0,
       int64_t(1) << 40},
      {"attention_flops_per_logit_pair", file.attention_flops_per_logit_pair(),
       0, int64_t(1) << 40},
  };
  for (const auto &range : ranges)
    if (auto ok = checkRange(range.name, range.value, range.low, range.high);
        !ok)
      return ok;
  return verifyKVCacheSpec(*file.kv_cache(), file.max_seq());
}

} // namespace

Result<void> prefill::rt::checkRange(const std::string &what, int64_t value,
                                     int64_t low, int64_t high) {
  if (value >= low && value <= high)
    return {};
  return invalidModule(what + " is " + std::to_string(value) + ", expected " +
                       std::to_string(low) + " to " + std::to_string(high));
}

Error prefill::rt::invalidModule(const std::string &message) {
  return Error{ErrorCode::invalidModule, "invalid module: " + message};
}

int prefill::rt::numWords(module::ArgKind kind) {
  switch (kind) {
  case module::ArgKind::buffer:
  case module::ArgKind::weight:
    return 1;
  case module::ArgKind::batch:
    return 11;
  case module::ArgKind::kv_cache:
    return 5;
  case module::ArgKind::score:
    return 2;
  }
  return 0;
}

uint64_t prefill::rt::byteSize(const module::Weight &weight) {
  uint64_t bytes = byteSize(weight.dtype());
  for (int64_t extent : *weight.shape())
    bytes *= extent;
  return bytes;
}

Result<const module::Module *> prefill::rt::verifyModule(const std::byte *data,
                                                         uint64_t size) {
  const uint8_t *bytes = reinterpret_cast<const uint8_t *>(data);
  if (size < 8 || !module::ModuleBufferHasIdentifier(bytes))
    return invalidModule("not a compiled module: the file identifier " +
                         std::string(module::ModuleIdentifier()) +
                         " is missing");
  if (size >= FLATBUFFERS_MAX_BUFFER_SIZE)
    return invalidModule(std::to_string(size) +
                         " bytes, expected less than 2 GiB");
  if (Result<void> ok = verifyVersion(bytes, size); !ok)
    return ok.takeError();
  flatbuffers::Verifier verifier(bytes, size, /*max_depth=*/64,
                                 /*max_tables=*/1'000'000);
  if (!module::VerifyModuleBuffer(verifier))
    return invalidModule(
        "the file is truncated or damaged (FlatBuffers verification failed)");
  const module::Module &file = *module::GetModule(bytes);
  if (Result<void> ok = verifyChecksum(file, bytes, size); !ok)
    return ok.takeError();
  if (Result<void> ok = verifyModel(file); !ok)
    return ok.takeError();
  constexpr uint32_t maxPlans = 64;
  if (file.plans()->size() < 1 || file.plans()->size() > maxPlans)
    return invalidModule("the module has " +
                         std::to_string(file.plans()->size()) +
                         " plans, expected 1 to " + std::to_string(maxPlans));
  for (uint32_t i = 0; i < file.plans()->size(); ++i)
    if (Result<void> ok = verifyPlan(file, i); !ok)
      return ok.takeError();
  return &file;
}
