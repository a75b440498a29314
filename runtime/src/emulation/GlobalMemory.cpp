#include "emulation/GlobalMemory.h"
#include "prefill/emulation/Abi.h"

#include <algorithm>
#include <iterator>

using namespace prefill::rt;
using namespace prefill::rt::emulation;

Result<void> GlobalMemory::add(const void *begin, uint64_t size,
                               const std::string &name, bool writable) {
  auto address = reinterpret_cast<uint64_t>(begin);
  auto bad = [&](const std::string &reason) {
    return Error{ErrorCode::invalidArgument,
                 "emulated allocation '" + name + "' of " +
                     std::to_string(size) + " bytes " + reason};
  };
  if (size == 0 || address == 0 || address + size < address)
    return bad("is empty or wraps around (expected a range of memory)");
  constexpr uint64_t windowEnd = sharedWindow + (256 << 10);
  if (address < windowEnd && address + size > sharedWindow)
    return bad("lies in the window of shared memory");
  auto next = std::upper_bound(
      allocations.begin(), allocations.end(), address,
      [](uint64_t value, const Allocation &a) { return value < a.begin; });
  if (next != allocations.end() && address + size > next->begin)
    return bad("overlaps '" + next->name + "'");
  if (next != allocations.begin()) {
    const Allocation &previous = *std::prev(next);
    if (previous.begin + previous.size > address)
      return bad("overlaps '" + previous.name + "'");
  }
  allocations.insert(next, {name, address, size, writable, 0});
  // Two allocations may share a sector of the host; they do not on a device.
  numSectors = 0;
  for (Allocation &allocation : allocations) {
    allocation.firstSector = numSectors;
    uint64_t first = allocation.begin / sectorBytes;
    uint64_t last = (allocation.begin + allocation.size - 1) / sectorBytes;
    numSectors += last - first + 1;
  }
  return {};
}

void GlobalMemory::clear() {
  allocations.clear();
  numSectors = 0;
}

const Allocation *GlobalMemory::find(uint64_t address, uint64_t bytes) const {
  auto next = std::upper_bound(
      allocations.begin(), allocations.end(), address,
      [](uint64_t value, const Allocation &a) { return value < a.begin; });
  if (next == allocations.begin())
    return nullptr;
  const Allocation &found = *std::prev(next);
  uint64_t offset = address - found.begin;
  return offset < found.size && bytes <= found.size - offset ? &found : nullptr;
}

std::string GlobalMemory::describe(uint64_t address) const {
  const Allocation *nearest = nullptr;
  uint64_t distance = UINT64_MAX;
  bool before = false;
  for (const Allocation &allocation : allocations) {
    bool below = address < allocation.begin;
    uint64_t gap =
        below ? allocation.begin - address
              : address - std::min(address, allocation.begin + allocation.size);
    if (gap < distance) {
      nearest = &allocation;
      distance = gap;
      before = below;
    }
  }
  if (!nearest)
    return "no memory is registered";
  std::string name =
      "'" + nearest->name + "' (" + std::to_string(nearest->size) + " bytes)";
  if (before)
    return std::to_string(distance) + " bytes before " + name;
  if (address >= nearest->begin + nearest->size)
    return std::to_string(distance) + " bytes past the end of " + name;
  return "at byte " + std::to_string(address - nearest->begin) + " of " + name;
}
