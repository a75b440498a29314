#include "core/ModuleFile.h"
#include "core/KVCacheLayout.h"
#include "prefill/checkpoint/Quote.h"
#include "prefill/module/ModuleChecksum.h"

#include <cinttypes>
#include <cstdio>
#include <limits>
#include <optional>
#include <vector>

using namespace prefill;
using namespace prefill::rt;

namespace {

// Limits far above any model and far below an overflow: with them, products of
// two extents fit in 64 bits.
constexpr int64_t maxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t maxExtent = int64_t(1) << 40;
constexpr int64_t maxScratchBytes = int64_t(1) << 32;
constexpr uint32_t maxArgs = 1024;
// Workgroups for each block of rows: column tiles or heads.
constexpr int64_t maxMultiplier = int64_t(1) << 20;

Result<void> checkRange(const std::string &what, int64_t value, int64_t low,
                        int64_t high) {
  if (value >= low && value <= high)
    return {};
  return invalidModule(what + " is " + std::to_string(value) + ", expected " +
                       std::to_string(low) + " to " + std::to_string(high));
}

std::string indexed(const char *kind, uint32_t index,
                    const flatbuffers::String *name) {
  return std::string(kind) + " " + std::to_string(index) + " " +
         quote(name->string_view());
}

bool isFloat(module::DType dtype) {
  return dtype == module::DType::f32 || dtype == module::DType::bf16 ||
         dtype == module::DType::f16;
}

std::string hex(uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof text, "0x%016" PRIx64, value);
  return text;
}

/// The version first: files of version 1 have no checksum.
Result<void> verifyChecksum(const module::Module &file, const uint8_t *bytes,
                            uint64_t size) {
  if (file.format_version() != moduleFormatVersion)
    return invalidModule(
        "format version " + std::to_string(file.format_version()) +
        ", this runtime reads version " + std::to_string(moduleFormatVersion));
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
  };
  for (const auto &range : ranges)
    if (auto ok = checkRange(range.name, range.value, range.low, range.high);
        !ok)
      return ok;
  return verifyKVCacheSpec(*file.kv_cache(), file.max_seq());
}

Result<void> verifyBuckets(const module::Module &file) {
  const auto &buckets = *file.row_buckets();
  if (buckets.size() == 0)
    return invalidModule("row_buckets is empty");
  int64_t previous = 0;
  for (int32_t bucket : buckets) {
    if (bucket <= previous || bucket > 1 << 20)
      return invalidModule("row_buckets hold " + std::to_string(bucket) +
                           " after " + std::to_string(previous) +
                           ", expected increasing numbers of at most 2^20");
    previous = bucket;
  }
  return {};
}

Result<void> verifyBuffers(const module::Module &file) {
  const auto &buffers = *file.buffers();
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    const module::Buffer &buffer = *buffers[i];
    std::string what = indexed("buffer", i, buffer.name());
    if (buffer.domain() > module::RowDomain::MAX ||
        buffer.domain() < module::RowDomain::MIN)
      return invalidModule(what + ": unknown row domain " +
                           std::to_string(int(buffer.domain())));
    if (byteSize(buffer.dtype()) == 0)
      return invalidModule(what + ": unknown dtype " +
                           std::to_string(int(buffer.dtype())));
    if (auto ok = checkRange(what + ": row_bytes", buffer.row_bytes(), 1,
                             maxExtent / 2);
        !ok)
      return ok;
    if (auto ok = checkRange(what + ": row_offset", buffer.row_offset(), 0,
                             maxExtent / 2);
        !ok)
      return ok;
  }
  if (file.logits_buffer() >= buffers.size())
    return invalidModule("logits_buffer is " +
                         std::to_string(file.logits_buffer()) + ", but only " +
                         std::to_string(buffers.size()) + " buffers exist");
  const module::Buffer &logits = *buffers[file.logits_buffer()];
  if (logits.domain() != module::RowDomain::logits ||
      logits.dtype() != module::DType::f32 ||
      logits.row_bytes() != file.vocab_size() * 4)
    return invalidModule(
        indexed("logits buffer", file.logits_buffer(), logits.name()) +
        ": expected f32 rows of vocab_size " +
        std::to_string(file.vocab_size()) + " in the logits domain");
  return {};
}

Result<void> verifyKernels(const module::Module &file) {
  const auto &kernels = *file.kernels();
  for (uint32_t i = 0; i < kernels.size(); ++i) {
    const module::Kernel &kernel = *kernels[i];
    std::string what = indexed("kernel", i, kernel.name());
    if (kernel.name()->size() == 0)
      return invalidModule(what + " has no name");
    const module::Grid &grid = *kernel.grid();
    if (grid.domain() > module::RowDomain::MAX ||
        grid.domain() < module::RowDomain::MIN)
      return invalidModule(what + ": unknown row domain " +
                           std::to_string(int(grid.domain())));
    if (auto ok = checkRange(what + ": block", grid.block(), 1, maxInt32); !ok)
      return ok;
    if (auto ok = checkRange(what + ": multiplier", grid.multiplier(), 1,
                             maxMultiplier);
        !ok)
      return ok;
    if (auto ok = checkRange(what + ": scratch_bytes", kernel.scratch_bytes(),
                             0, maxScratchBytes);
        !ok)
      return ok;
    if (auto ok = checkRange(what + ": num_words", kernel.num_words(), 0,
                             int64_t(maxArgs) * 16);
        !ok)
      return ok;
  }
  return {};
}

/// One argument of a launch; `what` starts the message.
Result<void> verifyArg(const module::Module &file, const module::Arg &arg,
                       const std::string &what) {
  auto limit = [&](const char *kind, uint32_t size) -> Result<void> {
    if (arg.index() < size)
      return {};
    return invalidModule(what + ": " + kind + " " +
                         std::to_string(arg.index()) + ", but only " +
                         std::to_string(size) + " exist");
  };
  switch (arg.kind()) {
  case module::ArgKind::buffer:
    return limit("buffer", file.buffers()->size());
  case module::ArgKind::weight: {
    if (auto ok = limit("weight", file.weights()->size()); !ok)
      return ok;
    const module::Weight &weight = *file.weights()->Get(arg.index());
    if (!weight.resident())
      return invalidModule(what + ": " +
                           indexed("weight", arg.index(), weight.name()) +
                           " is not resident");
    return {};
  }
  case module::ArgKind::batch:
    return {};
  case module::ArgKind::kv_cache:
    return limit("layer", static_cast<uint32_t>(file.num_layers()));
  case module::ArgKind::score:
    return checkRange(what + ": score heads", arg.index(), 1, 1 << 20);
  }
  return invalidModule(what + ": unknown kind " +
                       std::to_string(int(arg.kind())));
}

/// Launches of one kernel pass the same kinds of arguments in the same order:
/// the sum of their words alone does not tell a pointer from a size.
Result<void> verifyKinds(const module::Module &file, uint32_t index,
                         uint32_t firstIndex) {
  const module::Launch &launch = *file.launches()->Get(index);
  const module::Launch &first = *file.launches()->Get(firstIndex);
  std::string what = "launch " + std::to_string(index);
  std::string other = " launch " + std::to_string(firstIndex) +
                      " of the same " +
                      indexed("kernel", launch.kernel(),
                              file.kernels()->Get(launch.kernel())->name());
  if (launch.args()->size() != first.args()->size())
    return invalidModule(what + " has " +
                         std::to_string(launch.args()->size()) +
                         " arguments, but" + other + " has " +
                         std::to_string(first.args()->size()));
  for (uint32_t j = 0; j < launch.args()->size(); ++j) {
    module::ArgKind kind = launch.args()->Get(j)->kind();
    module::ArgKind expected = first.args()->Get(j)->kind();
    if (kind != expected)
      return invalidModule(what + ", argument " + std::to_string(j) +
                           ": kind " + module::EnumNameArgKind(kind) + ", but" +
                           other + " passes " +
                           module::EnumNameArgKind(expected));
  }
  return {};
}

Result<void> verifyLaunches(const module::Module &file) {
  const auto &launches = *file.launches();
  std::vector<std::optional<uint32_t>> firstLaunch(file.kernels()->size());
  for (uint32_t i = 0; i < launches.size(); ++i) {
    const module::Launch &launch = *launches[i];
    std::string what = "launch " + std::to_string(i);
    if (launch.kernel() >= file.kernels()->size())
      return invalidModule(what + ": kernel " +
                           std::to_string(launch.kernel()) + ", but only " +
                           std::to_string(file.kernels()->size()) + " exist");
    if (auto ok = checkRange(what + ": layer", launch.layer(), -1,
                             file.num_layers() - 1);
        !ok)
      return ok;
    if (launch.args()->size() > maxArgs)
      return invalidModule(
          what + " has " + std::to_string(launch.args()->size()) +
          " arguments, expected at most " + std::to_string(maxArgs));
    int words = 0;
    for (uint32_t j = 0; j < launch.args()->size(); ++j) {
      const module::Arg &arg = *launch.args()->Get(j);
      if (auto ok =
              verifyArg(file, arg, what + ", argument " + std::to_string(j));
          !ok)
        return ok;
      words += numWords(arg.kind());
    }
    const module::Kernel &kernel = *file.kernels()->Get(launch.kernel());
    if (words != kernel.num_words())
      return invalidModule(what + " passes " + std::to_string(words) +
                           " words, but " +
                           indexed("kernel", launch.kernel(), kernel.name()) +
                           " takes " + std::to_string(kernel.num_words()));
    std::optional<uint32_t> &first = firstLaunch[launch.kernel()];
    if (!first)
      first = i;
    if (auto ok = verifyKinds(file, i, *first); !ok)
      return ok;
  }
  return {};
}

Result<void> verifyCode(const module::Module &file) {
  for (const module::Code *code : *file.code()) {
    std::string what = "code " + quote(code->target()->string_view()) + ":" +
                       quote(code->variant()->string_view());
    if (code->object()->size() == 0)
      return invalidModule(what + " is empty");
  }
  return {};
}

} // namespace

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

int64_t prefill::rt::byteSize(module::DType dtype) {
  switch (dtype) {
  case module::DType::bf16:
  case module::DType::f16:
    return 2;
  case module::DType::f32:
  case module::DType::i32:
    return 4;
  case module::DType::i64:
    return 8;
  }
  return 0;
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
  flatbuffers::Verifier verifier(bytes, size, /*max_depth=*/64,
                                 /*max_tables=*/1'000'000);
  if (!module::VerifyModuleBuffer(verifier))
    return invalidModule(
        "the file is truncated or damaged (FlatBuffers verification failed)");
  const module::Module &file = *module::GetModule(bytes);
  if (Result<void> ok = verifyChecksum(file, bytes, size); !ok)
    return ok.takeError();
  for (auto *check : {verifyModel, verifyBuckets, verifyWeightProgram,
                      verifyBuffers, verifyKernels, verifyLaunches, verifyCode})
    if (Result<void> ok = check(file); !ok)
      return ok.takeError();
  return &file;
}
