// Where everything lies in a file of packed weights.
#ifndef PREFILL_RUNTIME_CORE_WEIGHTSCACHEFORMAT_H
#define PREFILL_RUNTIME_CORE_WEIGHTSCACHEFORMAT_H

#include "core/WeightsCacheKey.h"

#include <cstdint>
#include <vector>

namespace prefill::rt {

/// At byte 0, numTensors checksums (contentHash of each resident weight, in the
/// module's order) behind it. Little endian, as every machine this runs on.
struct WeightsCacheHeader {
  char magic[8];
  uint32_t version;
  uint32_t numTensors;
  WeightsCacheKey key;
  uint64_t fileBytes;
  uint64_t checksum; ///< of the header, this field 0, and the checksums
};

inline constexpr char weightsCacheMagic[8] = {'P', 'F', 'W', 'E',
                                              'I', 'G', 'H', 'T'};
inline constexpr uint32_t weightsCacheVersion = 1;

/// A page of the second size of x86-64. A file that is written in pieces of
/// this size at multiples of it lies in the page cache as large folios, which
/// are then mapped by one entry each: neither 4-KiB faults nor their TLB misses
/// (ext4 since Linux 6.16, XFS since 5.18; elsewhere it does no harm).
inline constexpr uint64_t weightsCachePiece = uint64_t(2) << 20;

/// Places follow from the plan alone; the file need not say them.
struct WeightsCacheLayout {
  struct Place {
    uint32_t weight;        ///< index into the plan's weights
    uint64_t offset, bytes; ///< offset: a multiple of 64
  };
  /// Ascending by offset. Weights smaller than a piece come first, one after
  /// the other; every other starts at a multiple of weightsCachePiece.
  std::vector<Place> places;
  uint64_t tensorBytes = 0; ///< without header and padding
  uint64_t fileBytes = 0;   ///< a vector may be read past the last weight's end

  explicit WeightsCacheLayout(const module::Plan &plan);
};

/// header.checksum as it has to be.
uint64_t weightsCacheChecksum(WeightsCacheHeader header,
                              const std::vector<uint64_t> &checksums);

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_WEIGHTSCACHEFORMAT_H
