#include "core/WeightsCacheFormat.h"

using namespace prefill;
using namespace prefill::rt;

namespace {

uint64_t alignTo(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

} // namespace

WeightsCacheLayout::WeightsCacheLayout(const module::Plan &plan) {
  uint32_t numTensors = 0;
  for (const module::Weight *weight : *plan.weights())
    numTensors += weight->resident();
  uint64_t end = sizeof(WeightsCacheHeader) + numTensors * sizeof(uint64_t);
  for (bool large : {false, true})
    for (uint32_t i = 0; i < plan.weights()->size(); ++i) {
      const module::Weight &weight = *plan.weights()->Get(i);
      uint64_t bytes = byteSize(weight);
      if (!weight.resident() || (bytes >= weightsCachePiece) != large)
        continue;
      uint64_t offset = alignTo(end, large ? weightsCachePiece : 64);
      places.push_back({i, offset, bytes});
      tensorBytes += bytes;
      end = offset + bytes;
    }
  constexpr uint64_t page = 4096;
  fileBytes = alignTo(end, page) + page;
}

uint64_t
prefill::rt::weightsCacheChecksum(WeightsCacheHeader header,
                                  const std::vector<uint64_t> &checksums) {
  header.checksum = 0;
  uint64_t parts[2] = {
      contentHash(&header, sizeof header),
      contentHash(checksums.data(), checksums.size() * sizeof(uint64_t))};
  return contentHash(parts, sizeof parts);
}
