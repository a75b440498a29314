// The checksum that guards a module file. The FlatBuffers verifier and the
// runtime's checks see damage that breaks a rule; a damaged grid, argument or
// instruction can keep every rule and would only be found by running it.
#ifndef PREFILL_MODULE_MODULECHECKSUM_H
#define PREFILL_MODULE_MODULECHECKSUM_H

#include "prefill/module_generated.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace prefill::module {

/// Where the field `Module.checksum` lies in `bytes`, which passed the
/// FlatBuffers verifier: a multiple of 8. Nothing when the file has no such
/// field.
inline std::optional<size_t> checksumOffset(const uint8_t *bytes) {
  const uint8_t *field =
      flatbuffers::GetRoot<flatbuffers::Table>(bytes)->GetAddressOf(
          Module::VT_CHECKSUM);
  if (!field || (field - bytes) % sizeof(uint64_t) != 0)
    return std::nullopt;
  return static_cast<size_t>(field - bytes);
}

/// FNV-1a over 64-bit little-endian words, the last one padded with zeros and
/// the one at `checksumAt` taken as zero, then over the size. Every step is a
/// bijection of the hash and of the word, so a change within one word never
/// goes unseen. Finds accidents; it is no defence against intent, since a
/// module is code anyway.
inline uint64_t moduleChecksum(const uint8_t *bytes, size_t size,
                               size_t checksumAt) {
  uint64_t hash = 0xcbf29ce484222325;
  auto take = [&](uint64_t word) {
    hash = (hash ^ word) * 0x100000001b3;
    hash ^= hash >> 32; // without it the top bits of a word reach only the top
  };
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    if (at != checksumAt)
      std::memcpy(&word, bytes + at,
                  size - at < sizeof word ? size - at : sizeof word);
    take(word);
  }
  take(size);
  return hash;
}

/// Writes the checksum of the whole file into its field, which must have been
/// serialized with any value (FlatBuffers omits fields that are 0). `bytes` are
/// 8-byte aligned. False, with nothing written, when they are no module file or
/// have no such field.
[[nodiscard]] inline bool sealModule(uint8_t *bytes, size_t size) {
  flatbuffers::Verifier verifier(bytes, size, /*max_depth=*/64,
                                 /*max_tables=*/1'000'000);
  if (!VerifyModuleBuffer(verifier))
    return false;
  std::optional<size_t> at = checksumOffset(bytes);
  if (!at)
    return false;
  flatbuffers::WriteScalar(bytes + *at, moduleChecksum(bytes, size, *at));
  return true;
}

} // namespace prefill::module

#endif // PREFILL_MODULE_MODULECHECKSUM_H
