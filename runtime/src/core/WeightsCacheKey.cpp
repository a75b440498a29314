#include "core/WeightsCacheKey.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

using namespace prefill;
using namespace prefill::rt;

namespace {

/// To be advanced whenever WeightProgram or WeightPacking gives other bytes for
/// the same program and checkpoint.
constexpr int64_t packingVersion = 1;

constexpr uint64_t numBlocks = 64;
constexpr uint64_t blockBytes = 4096;

void addInputs(FieldHasher &hasher,
               const flatbuffers::Vector<uint32_t> &inputs) {
  hasher.add(static_cast<int64_t>(inputs.size()));
  for (uint32_t input : inputs)
    hasher.add(static_cast<int64_t>(input));
}

void addSource(FieldHasher &hasher, const module::Weight &weight) {
  hasher.add(static_cast<int64_t>(weight.source_type()));
  switch (weight.source_type()) {
  case module::WeightSource::CheckpointSource:
    return hasher.add(
        weight.source_as_CheckpointSource()->name()->string_view());
  case module::WeightSource::ConcatSource:
    return addInputs(hasher, *weight.source_as_ConcatSource()->inputs());
  case module::WeightSource::InterleaveSource: {
    const auto &source = *weight.source_as_InterleaveSource();
    addInputs(hasher, *source.inputs());
    return hasher.add(source.granularity());
  }
  case module::WeightSource::ScaleColumnsSource: {
    const auto &source = *weight.source_as_ScaleColumnsSource();
    hasher.add(static_cast<int64_t>(source.input()));
    return hasher.add(static_cast<int64_t>(source.gain()));
  }
  case module::WeightSource::PackSource: {
    const auto &source = *weight.source_as_PackSource();
    hasher.add(static_cast<int64_t>(source.input()));
    hasher.add(source.panel_n());
    hasher.add(source.k_pack());
    return hasher.add(source.group_n());
  }
  case module::WeightSource::RopeTableSource: {
    const auto &source = *weight.source_as_RopeTableSource();
    hasher.add(source.max_position());
    return hasher.add(source.inv_freq()->data(),
                      source.inv_freq()->size() * sizeof(float));
  }
  case module::WeightSource::QuantizeSource:
    return hasher.add(
        static_cast<int64_t>(weight.source_as_QuantizeSource()->input()));
  case module::WeightSource::QuantizeScaleSource:
    return hasher.add(
        static_cast<int64_t>(weight.source_as_QuantizeScaleSource()->input()));
  case module::WeightSource::NONE:
    return;
  }
}

/// pread of `size` bytes; short only at the end of the file.
ssize_t readAt(int descriptor, void *out, size_t size, uint64_t offset) {
  for (;;) {
    ssize_t count = ::pread(descriptor, out, size, static_cast<off_t>(offset));
    if (count >= 0 || errno != EINTR)
      return count;
  }
}

} // namespace

Hash128 prefill::rt::hashWeightProgram(const module::Plan &plan) {
  FieldHasher hasher;
  hasher.add(packingVersion);
  hasher.add(static_cast<int64_t>(plan.weights()->size()));
  for (const module::Weight *weight : *plan.weights()) {
    hasher.add(weight->name()->string_view());
    hasher.add(static_cast<int64_t>(weight->shape()->size()));
    for (int64_t extent : *weight->shape())
      hasher.add(extent);
    hasher.add(static_cast<int64_t>(weight->dtype()));
    hasher.add(static_cast<int64_t>(weight->resident()));
    addSource(hasher, *weight);
  }
  return hasher.digest();
}

Result<Hash128> prefill::rt::hashCheckpoint(const std::string &directory,
                                            const Checkpoint &checkpoint) {
  FieldHasher hasher;
  for (const Checkpoint::File &file : checkpoint.files()) {
    hasher.add(file.name);
    hasher.add(static_cast<int64_t>(file.mapping.size()));
    hasher.add(file.mapping.modifiedNs());
    uint64_t headerBytes = 0; // opening the checkpoint has verified it
    std::memcpy(&headerBytes, file.mapping.data(), sizeof headerBytes);
    hasher.add(file.mapping.data() + sizeof headerBytes, headerBytes);

    // Read, not touched in the mapping: a fault may bring in megabytes around
    // each block.
    std::string path = directory + "/" + file.name;
    int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    auto failure = [&] {
      Error error{ErrorCode::io,
                  "cannot read " + quote(path) + ": " + std::strerror(errno)};
      if (descriptor >= 0)
        ::close(descriptor);
      return error;
    };
    if (descriptor < 0)
      return failure();
    uint64_t last =
        file.mapping.size() - std::min(file.mapping.size(), blockBytes);
    for (uint64_t i = 0; i < numBlocks; ++i) {
      char block[blockBytes];
      uint64_t offset = last * i / (numBlocks - 1);
      ssize_t count = readAt(descriptor, block, sizeof block, offset);
      if (count < 0)
        return failure();
      hasher.add(block, static_cast<size_t>(count));
    }
    ::close(descriptor);
  }
  return hasher.digest();
}

Result<WeightsCacheKey> WeightsCacheKey::create(const module::Plan &plan,
                                                const std::string &directory,
                                                const Checkpoint &checkpoint) {
  Result<Hash128> hash = hashCheckpoint(directory, checkpoint);
  if (!hash)
    return hash.takeError();
  return WeightsCacheKey{hashWeightProgram(plan), *hash};
}
