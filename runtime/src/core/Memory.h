// The one place where the runtime takes memory for tensors: every byte belongs
// to one of four classes and is counted when it is taken.
#ifndef PREFILL_RUNTIME_CORE_MEMORY_H
#define PREFILL_RUNTIME_CORE_MEMORY_H

#include "prefill/checkpoint/Result.h"

#include <array>
#include <atomic>
#include <cassert>
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

/// An address as kernels see it. It is a host pointer where
/// DeviceMemory::isHost().
using DeviceAddress = uint64_t;

inline DeviceAddress addressOf(const void *pointer) {
  return static_cast<DeviceAddress>(reinterpret_cast<uintptr_t>(pointer));
}

/// The other way round; only where DeviceMemory::isHost().
inline void *hostPointer(DeviceAddress address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it was a pointer before.
  return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

/// Where a device's memory comes from. Copies are done when they return.
/// Thread safe.
class DeviceMemory {
public:
  virtual ~DeviceMemory() = default;

  /// Addresses are pointers that the host may use.
  virtual bool isHost() const = 0;
  /// `bytes` > 0, aligned to 64 bytes at least, all zero. The message of an
  /// error completes "out of memory: class weights: 10 bytes for x, ".
  virtual Result<DeviceAddress> take(uint64_t bytes) = 0;
  virtual void giveBack(DeviceAddress address, uint64_t bytes) = 0;

  virtual Result<void> upload(DeviceAddress to, const void *from,
                              uint64_t bytes) = 0;
  virtual Result<void> download(void *to, DeviceAddress from,
                                uint64_t bytes) const = 0;
  virtual Result<void> fill(DeviceAddress address, int byte,
                            uint64_t bytes) = 0;
};

/// The memory of the machine itself. Refuses before any page is touched when
/// the machine has less memory available than asked for: an overcommitted
/// mapping would succeed now and end in the kernel's OOM killer later.
class HostMemory : public DeviceMemory {
public:
  /// From this size on an allocation is a mapping of its own: page-aligned,
  /// zero until touched, returned to the system when freed.
  static constexpr uint64_t ownPagesBytes = uint64_t(1) << 20;

  bool isHost() const override { return true; }
  Result<DeviceAddress> take(uint64_t bytes) override;
  void giveBack(DeviceAddress address, uint64_t bytes) override;
  Result<void> upload(DeviceAddress to, const void *from,
                      uint64_t bytes) override;
  Result<void> download(void *to, DeviceAddress from,
                        uint64_t bytes) const override;
  Result<void> fill(DeviceAddress address, int byte, uint64_t bytes) override;

  static HostMemory &instance();
};

class Allocator;

/// Owned bytes, 64-byte aligned, zero at first. Freed and uncounted on
/// destruction. Behind the last byte lies a guard (granularity of the
/// allocator: not counted) that tells whether somebody wrote past the end.
class Allocation {
public:
  Allocation() = default;
  Allocation(Allocation &&other) noexcept;
  Allocation &operator=(Allocation &&other) noexcept;
  Allocation(const Allocation &) = delete;
  Allocation &operator=(const Allocation &) = delete;
  ~Allocation();

  /// 0 when empty.
  DeviceAddress address() const { return where; }
  /// Host memory only.
  std::byte *data() { return pointer(); }
  const std::byte *data() const { return pointer(); }
  uint64_t size() const { return length; }
  /// False also where the memory cannot be read.
  bool guardIntact() const;

private:
  friend class Allocator;
  std::byte *pointer() const;

  DeviceAddress where = 0;
  uint64_t length = 0;
  Allocator *owner = nullptr;
  MemoryClass memoryClass = MemoryClass::temporaries;
};

/// Counts what it hands out, class by class. Must outlive its allocations.
/// Weights, cache and session have one each, so that their sums are exact even
/// when several sessions share a device.
class Allocator {
public:
  explicit Allocator(DeviceMemory &memory = HostMemory::instance())
      : source(memory) {}
  Allocator(const Allocator &) = delete;
  Allocator &operator=(const Allocator &) = delete;

  DeviceMemory &memory() const { return source; }

  /// `what` completes the message "out of memory: class kv_cache: N bytes for
  /// <what>". bytes == 0 is allowed.
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
  DeviceMemory &source;
  std::array<std::atomic<uint64_t>, numClasses> currentBytes{};
  std::array<std::atomic<uint64_t>, numClasses> peakBytes{};
  uint64_t limit = UINT64_MAX;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_MEMORY_H
