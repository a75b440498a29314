// The device memory that a launch may touch.
#ifndef PREFILL_RUNTIME_EMULATION_GLOBALMEMORY_H
#define PREFILL_RUNTIME_EMULATION_GLOBALMEMORY_H

#include "prefill/checkpoint/Result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace prefill::rt::emulation {

inline constexpr int sectorBytes = 32;

struct Allocation {
  std::string name;
  uint64_t begin = 0, size = 0; ///< host address and bytes
  bool writable = true;
  /// Number of its first sector, counted over all allocations.
  uint64_t firstSector = 0;
};

class GlobalMemory {
public:
  /// Refused: an empty or overlapping range, and one inside the window that
  /// kernels see shared memory in.
  Result<void> add(const void *begin, uint64_t size, const std::string &name,
                   bool writable = true);
  void clear();

  /// The allocation that holds all of [address, address + bytes), or nullptr.
  const Allocation *find(uint64_t address, uint64_t bytes) const;

  /// For a message: where an address outside lies with respect to the nearest
  /// allocation.
  std::string describe(uint64_t address) const;

  uint64_t sectors() const { return numSectors; }

private:
  std::vector<Allocation> allocations; ///< by address
  uint64_t numSectors = 0;
};

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_GLOBALMEMORY_H
