#include "core/Memory.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <utility>

using namespace prefill::rt;

namespace {

/// Below this size asking the system what is available is not worth it.
constexpr uint64_t availabilityThreshold = uint64_t(64) << 20;

constexpr uint64_t guardBytes = 64;
constexpr int guardPattern = 0xa5;

/// MemAvailable of /proc/meminfo in bytes; UINT64_MAX where it cannot be read.
uint64_t availableBytes() {
  std::FILE *file = std::fopen("/proc/meminfo", "re");
  if (!file)
    return UINT64_MAX;
  uint64_t available = UINT64_MAX;
  char line[256];
  while (std::fgets(line, sizeof line, file)) {
    unsigned long long kilobytes;
    if (std::sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1) {
      available = uint64_t(kilobytes) * 1024;
      break;
    }
  }
  std::fclose(file);
  return available;
}

} // namespace

const char *prefill::rt::stringify(MemoryClass memoryClass) {
  switch (memoryClass) {
  case MemoryClass::weights:
    return "weights";
  case MemoryClass::activationPeak:
    return "activation_peak";
  case MemoryClass::kvCache:
    return "kv_cache";
  case MemoryClass::temporaries:
    return "temporaries";
  }
  return "?";
}

Result<Allocation> Allocator::allocate(MemoryClass memoryClass, uint64_t bytes,
                                       const std::string &what) {
  auto refused = [&](const std::string &reason) {
    return Error{ErrorCode::outOfMemory,
                 std::string("out of memory: class ") + stringify(memoryClass) +
                     ": " + std::to_string(bytes) + " bytes for " + what +
                     ", " + reason};
  };
  Allocation allocation;
  if (bytes == 0)
    return allocation;

  uint64_t total = 0;
  for (const std::atomic<uint64_t> &count : currentBytes)
    total += count;
  if (bytes > limit || total > limit - bytes)
    return refused("but only " + std::to_string(limit - total) + " of " +
                   std::to_string(limit) + " are left");
  if (bytes >= availabilityThreshold)
    if (uint64_t available = availableBytes(); bytes > available)
      return refused("but only " + std::to_string(available) +
                     " are available on this machine");

  void *memory;
  if (bytes >= Allocation::ownPagesBytes) {
    memory = ::mmap(nullptr, bytes + guardBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      return refused(std::string("mmap: ") + std::strerror(errno));
#ifdef MADV_HUGEPAGE
    ::madvise(memory, bytes + guardBytes, MADV_HUGEPAGE); // only a hint
#endif
  } else {
    memory = std::aligned_alloc(64, (bytes + guardBytes + 63) / 64 * 64);
    if (!memory)
      return refused(std::string("malloc: ") + std::strerror(errno));
    std::memset(memory, 0, bytes);
  }

  std::memset(static_cast<std::byte *>(memory) + bytes, guardPattern,
              guardBytes);
  allocation.bytes = static_cast<std::byte *>(memory);
  allocation.length = bytes;
  allocation.owner = this;
  allocation.memoryClass = memoryClass;
  size_t index = static_cast<size_t>(memoryClass);
  uint64_t now = currentBytes[index].fetch_add(bytes) + bytes;
  uint64_t before = peakBytes[index];
  while (before < now && !peakBytes[index].compare_exchange_weak(before, now))
    ;
  return allocation;
}

void Allocator::release(const Allocation &allocation) {
  if (allocation.length >= Allocation::ownPagesBytes)
    ::munmap(allocation.bytes, allocation.length + guardBytes);
  else
    std::free(allocation.bytes);
  currentBytes[static_cast<size_t>(allocation.memoryClass)] -=
      allocation.length;
}

uint64_t Allocator::current(MemoryClass memoryClass) const {
  return currentBytes[static_cast<size_t>(memoryClass)];
}

uint64_t Allocator::peak(MemoryClass memoryClass) const {
  return peakBytes[static_cast<size_t>(memoryClass)];
}

bool Allocation::guardIntact() const {
  for (uint64_t i = 0; bytes && i < guardBytes; ++i)
    if (bytes[length + i] != std::byte(guardPattern))
      return false;
  return true;
}

Allocation::Allocation(Allocation &&other) noexcept
    : bytes(std::exchange(other.bytes, nullptr)),
      length(std::exchange(other.length, 0)),
      owner(std::exchange(other.owner, nullptr)),
      memoryClass(other.memoryClass) {}

Allocation &Allocation::operator=(Allocation &&other) noexcept {
  if (this != &other) {
    if (owner)
      owner->release(*this);
    bytes = std::exchange(other.bytes, nullptr);
    length = std::exchange(other.length, 0);
    owner = std::exchange(other.owner, nullptr);
    memoryClass = other.memoryClass;
  }
  return *this;
}

Allocation::~Allocation() {
  if (owner)
    owner->release(*this);
}
