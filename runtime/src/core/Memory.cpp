#include "core/Memory.h"

#include <algorithm>
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

HostMemory &HostMemory::instance() {
  static HostMemory memory;
  return memory;
}

Result<DeviceAddress> HostMemory::take(uint64_t bytes) {
  auto refused = [](const std::string &reason) {
    return Error{ErrorCode::outOfMemory, reason};
  };
  if (bytes >= availabilityThreshold)
    if (uint64_t available = availableBytes(); bytes > available)
      return refused("but only " + std::to_string(available) +
                     " are available on this machine");
  void *memory;
  if (bytes >= ownPagesBytes) {
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      return refused(std::string("mmap: ") + std::strerror(errno));
#ifdef MADV_HUGEPAGE
    ::madvise(memory, bytes, MADV_HUGEPAGE); // only a hint
#endif
  } else {
    memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory)
      return refused(std::string("malloc: ") + std::strerror(errno));
    std::memset(memory, 0, bytes);
  }
  return addressOf(memory);
}

void HostMemory::giveBack(DeviceAddress address, uint64_t bytes) {
  if (bytes >= ownPagesBytes)
    ::munmap(hostPointer(address), bytes);
  else
    std::free(hostPointer(address));
}

Result<void> HostMemory::upload(DeviceAddress to, const void *from,
                                uint64_t bytes) {
  std::memcpy(hostPointer(to), from, bytes);
  return {};
}

Result<void> HostMemory::download(void *to, DeviceAddress from,
                                  uint64_t bytes) const {
  std::memcpy(to, hostPointer(from), bytes);
  return {};
}

Result<void> HostMemory::fill(DeviceAddress address, int byte, uint64_t bytes) {
  std::memset(hostPointer(address), byte, bytes);
  return {};
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
  Result<DeviceAddress> taken = source.take(bytes + guardBytes);
  if (!taken)
    return refused(taken.error().message);
  allocation.where = *taken;
  allocation.length = bytes;
  allocation.owner = this;
  allocation.memoryClass = memoryClass;
  size_t index = static_cast<size_t>(memoryClass);
  uint64_t now = currentBytes[index].fetch_add(bytes) + bytes;
  uint64_t before = peakBytes[index];
  while (before < now && !peakBytes[index].compare_exchange_weak(before, now))
    ;
  if (Result<void> ok = source.fill(*taken + bytes, guardPattern, guardBytes);
      !ok)
    return ok.takeError();
  return allocation;
}

void Allocator::release(const Allocation &allocation) {
  source.giveBack(allocation.where, allocation.length + guardBytes);
  currentBytes[static_cast<size_t>(allocation.memoryClass)] -=
      allocation.length;
}

uint64_t Allocator::current(MemoryClass memoryClass) const {
  return currentBytes[static_cast<size_t>(memoryClass)];
}

uint64_t Allocator::peak(MemoryClass memoryClass) const {
  return peakBytes[static_cast<size_t>(memoryClass)];
}

std::byte *Allocation::pointer() const {
  assert((!owner || owner->memory().isHost()) &&
         "the memory is the device's own");
  return static_cast<std::byte *>(hostPointer(where));
}

bool Allocation::guardIntact() const {
  if (!owner)
    return true;
  std::byte guard[guardBytes];
  return owner->memory().download(guard, where + length, guardBytes) &&
         std::all_of(guard, guard + guardBytes,
                     [](std::byte b) { return b == std::byte(guardPattern); });
}

Allocation::Allocation(Allocation &&other) noexcept
    : where(std::exchange(other.where, 0)),
      length(std::exchange(other.length, 0)),
      owner(std::exchange(other.owner, nullptr)),
      memoryClass(other.memoryClass) {}

Allocation &Allocation::operator=(Allocation &&other) noexcept {
  if (this != &other) {
    if (owner)
      owner->release(*this);
    where = std::exchange(other.where, 0);
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
