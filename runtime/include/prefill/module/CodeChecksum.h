// The checksum that guards the code objects of a module file. The FlatBuffers
// verifier and the runtime's checks see every other damaged byte; damaged
// machine code could only be found by running it.
#ifndef PREFILL_MODULE_CODECHECKSUM_H
#define PREFILL_MODULE_CODECHECKSUM_H

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace prefill::module {

/// FNV-1a over 64-bit little-endian words, the last one padded with zeros, then
/// over the length; never 0, which in a file means "none". Finds accidents; it
/// is no defence against intent, since a module is code anyway.
inline uint64_t codeChecksum(const void *data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325;
  auto take = [&](uint64_t word) {
    hash = (hash ^ word) * 0x100000001b3;
    hash ^= hash >> 32; // without it the top bits of a word reach only the top
  };
  const unsigned char *bytes = static_cast<const unsigned char *>(data);
  for (size_t at = 0; at < size; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, size - at < 8 ? size - at : 8);
    take(word);
  }
  take(size);
  return hash ? hash : 1;
}

} // namespace prefill::module

#endif // PREFILL_MODULE_CODECHECKSUM_H
