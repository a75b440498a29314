// Byte patterns of poison mode.
#ifndef PREFILL_RUNTIME_CORE_CANARY_H
#define PREFILL_RUNTIME_CORE_CANARY_H

#include <cstddef>
#include <cstdint>

namespace prefill::rt {

/// All bits set: a NaN in f32, bf16 and f16.
inline constexpr int nanPattern = 0xff;
/// In each 8-bit integer: -64, or 64 where kernels hold rows with 128 added.
inline constexpr int int8Pattern = 0xc0;
/// What lies around a buffer and must not change.
inline constexpr int canaryPattern = 0xc5;
inline constexpr uint64_t canaryBytes = 64;

inline bool canaryIntact(const std::byte *canary) {
  for (uint64_t i = 0; i < canaryBytes; ++i)
    if (canary[i] != std::byte(canaryPattern))
      return false;
  return true;
}

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_CANARY_H
