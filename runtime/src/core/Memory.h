// The one place where the runtime takes memory for tensors: every byte belongs
// to one of four classes and is counted when it is taken.
#ifndef PREFILL_RUNTIME_CORE_MEMORY_H
#define PREFILL_RUNTIME_CORE_MEMORY_H

#include "prefill/checkpoint/Result.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace prefill::rt {

enum class MemoryClass {
  weights,        ///< tensors that kernels read
  activationPeak, ///< the arena of activation buffers
  kvCache,        ///< keys and values
  temporaries, ///< kernels' scratch, batch metadata, score matrix, load buffers
};
/// "weights", "activation_peak", "kv_cache", "temporaries".
const char *stringify(MemoryClass memoryClass);

class Allocator;

/// Owned bytes, 64-byte aligned, zero at first. Freed and uncounted on
/// destruction. Large allocations are pages of their own. Behind the last byte
/// lies a guard (granularity of the allocator: not counted) that tells whether
/// somebody wrote past the end.
class Allocation {
public:
  /// From this size on an allocation is a mapping of its own: page-aligned,
  /// zero until touched, returned to the system when freed.
  static constexpr uint64_t ownPagesBytes = uint64_t(1) << 20;

  Allocation() = default;
  Allocation(Allocation &&other) noexcept;
  Allocation &operator=(Allocation &&other) noexcept;
  Allocation(const Allocation &) = delete;
  Allocation &operator=(const Allocation &) = delete;
  ~Allocation();

  std::byte *data() { return bytes; }
  const std::byte *data() const { return bytes; }
  uint64_t size() const { return length; }
  bool guardIntact() const;

private:
  friend class Allocator;
  std::byte *bytes = nullptr;
  uint64_t length = 0;
  Allocator *owner = nullptr;
  MemoryClass memoryClass = MemoryClass::temporaries;
};

/// Counts what it hands out, class by class. Must outlive its allocations.
/// Weights, cache and session have one each, so that their sums are exact even
/// when several sessions share a device.
class Allocator {
public:
  Allocator() = default;
  Allocator(const Allocator &) = delete;
  Allocator &operator=(const Allocator &) = delete;

  /// `what` completes the message "out of memory: class kv_cache: N bytes for
  /// <what>". Refused before any page is touched when the machine has less
  /// memory available than asked for: an overcommitted mapping would succeed
  /// now and end in the kernel's OOM killer later. bytes == 0 is allowed.
  Result<Allocation> allocate(MemoryClass memoryClass, uint64_t bytes,
                              const std::string &what);

  uint64_t current(MemoryClass memoryClass) const;
  uint64_t peak(MemoryClass memoryClass) const;

  /// Upper limit for the sum over all classes (default: none).
  void setLimit(uint64_t bytes) { limit = bytes; }

private:
  friend class Allocation;
  void release(const Allocation &allocation);

  static constexpr size_t numClasses = 4;
  std::array<std::atomic<uint64_t>, numClasses> currentBytes{};
  std::array<std::atomic<uint64_t>, numClasses> peakBytes{};
  uint64_t limit = UINT64_MAX;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_MEMORY_H
