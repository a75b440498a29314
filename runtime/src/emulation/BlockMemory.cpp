// The block's accesses of memory, and asynchronous copies.
#include "emulation/BlockRunner.h"

#include <cstring>

using namespace prefill::rt::emulation;

void *BlockRunner::access(uint32_t site, uint64_t address) {
  AddressSpace space = siteAt(site).space;
  if (space == AddressSpace::generic)
    space = address - sharedWindow < static_cast<uint64_t>(shared.size())
                ? AddressSpace::shared
                : AddressSpace::global;
  return space == AddressSpace::shared ? accessShared(site, address)
                                       : accessGlobal(site, address);
}

/// The offset of a shared address, after the checks of alignment and bounds.
int64_t BlockRunner::sharedOffset(uint32_t site, uint64_t address, int bytes,
                                  int alignment) {
  auto offset = static_cast<int64_t>(address - sharedWindow);
  if (address % static_cast<uint64_t>(alignment) != 0)
    fail(Finding::misaligned, site, -1, -1,
         std::to_string(bytes) + " bytes at byte " + std::to_string(offset) +
             " of shared memory (expected a multiple of " +
             std::to_string(alignment) + ")");
  if (offset < 0 || offset > shared.size() - bytes)
    fail(Finding::sharedOutOfBounds, site, -1, -1,
         std::to_string(bytes) + " bytes at byte " + std::to_string(offset) +
             " of shared memory (the block has " +
             std::to_string(shared.size()) + ")");
  return offset;
}

void *BlockRunner::accessShared(uint32_t site, uint64_t address) {
  const Site &at = siteAt(site);
  bool store = at.kind == SiteKind::store;
  int64_t offset = sharedOffset(site, address, at.bytes, at.alignment);
  auto hazard =
      store ? shared.write(current, static_cast<int>(site), offset, at.bytes)
            : shared.read(current, static_cast<int>(site), offset, at.bytes);
  if (hazard)
    failShared(*hazard, site, store ? "write" : "read", at.bytes);
  int chunk = at.chunk();
  for (int byte = 0; byte < at.bytes; byte += chunk)
    log.shared(warpOf(current), lane(), site, address + byte, chunk);
  if (launch.countOnly && !at.steersControl)
    return store ? sink : zeros;
  return shared.data(offset);
}

void BlockRunner::checkGlobal(uint32_t site, uint64_t address, int bytes,
                              bool store) {
  const Allocation *allocation = lastAllocation;
  if (!allocation || address < allocation->begin ||
      address + bytes > allocation->begin + allocation->size) {
    allocation = launch.memory->find(address, bytes);
    if (!allocation)
      fail(Finding::globalOutOfBounds, site, -1, -1,
           std::to_string(bytes) + " bytes " +
               launch.memory->describe(address));
    lastAllocation = allocation;
  }
  if (store && !allocation->writable)
    fail(Finding::readOnly, site, -1, -1,
         std::to_string(bytes) + " bytes " + launch.memory->describe(address));
  BlockRaces::Conflict conflict;
  if (launch.races &&
      launch.races->access(address, bytes, block, site, store, conflict)) {
    std::string other = conflict.block < 0
                            ? "several blocks"
                            : "block " + std::to_string(conflict.block);
    fail(Finding::globalRace, site, -1, static_cast<int>(conflict.site),
         std::string(store ? "write of " : "read of ") + std::to_string(bytes) +
             " bytes " + launch.memory->describe(address) + ", which " + other +
             (conflict.wrote ? " wrote" : " read") + " at " +
             siteAt(conflict.site).name);
  }
}

void *BlockRunner::accessGlobal(uint32_t site, uint64_t address) {
  const Site &at = siteAt(site);
  bool store = at.kind == SiteKind::store;
  int chunk = at.chunk();
  if (address % static_cast<uint64_t>(at.alignment) != 0)
    fail(Finding::misaligned, site, -1, -1,
         std::to_string(at.bytes) + " bytes " +
             launch.memory->describe(address) +
             " (expected an address that is a multiple of " +
             std::to_string(at.alignment) + ")");
  checkGlobal(site, address, at.bytes, store);
  for (int byte = 0; byte < at.bytes; byte += chunk)
    log.global(warpOf(current), lane(), site, address + byte, chunk);
  if (launch.countOnly && !at.steersControl)
    return store ? sink : zeros;
  return reinterpret_cast<void *>(address);
}

/// The destination is poisoned now, and the bytes arrive when the thread waits
/// for them: as late as is legal, so that whoever reads too early sees it.
void BlockRunner::asyncCopy(uint32_t site, uint64_t destination,
                            uint64_t source, uint32_t sourceBytes) {
  const Site &at = siteAt(site);
  if (sourceBytes > static_cast<uint32_t>(at.bytes))
    fail(Finding::invalidOperand, site, -1, -1,
         "copies " + std::to_string(sourceBytes) +
             " source bytes into a destination of " + std::to_string(at.bytes));
  int64_t offset = sharedOffset(site, destination, at.bytes, at.bytes);
  if (source % static_cast<uint64_t>(at.bytes) != 0)
    fail(Finding::misaligned, site, -1, -1,
         "source of " + std::to_string(at.bytes) + " bytes " +
             launch.memory->describe(source) +
             " (expected an address that is a multiple of " +
             std::to_string(at.bytes) + ")");
  auto width = static_cast<int>(sourceBytes);
  if (width > 0) {
    checkGlobal(site, source, width, /*store=*/false);
    log.global(warpOf(current), lane(), site, source, width);
  }
  log.shared(warpOf(current), lane(), site, destination, at.bytes);
  if (auto hazard =
          shared.beginCopy(current, static_cast<int>(site), offset, at.bytes))
    failShared(*hazard, site, "copy", at.bytes);
  threads[current].copies.push_back({source, static_cast<int32_t>(offset), site,
                                     static_cast<uint8_t>(at.bytes),
                                     static_cast<uint8_t>(width)});
}

void BlockRunner::commitGroup() {
  Thread &thread = threads[current];
  thread.groupEnds.push_back(static_cast<uint32_t>(thread.copies.size()));
}

void BlockRunner::waitGroup(uint32_t site) {
  Thread &thread = threads[current];
  auto mayStayOpen = static_cast<size_t>(siteAt(site).parameter);
  if (thread.groupEnds.size() <= mayStayOpen)
    return;
  size_t groups = thread.groupEnds.size() - mayStayOpen;
  uint32_t end = thread.groupEnds[groups - 1];
  for (uint32_t i = 0; i < end; ++i) {
    const Copy &copy = thread.copies[i];
    shared.endCopy(current, static_cast<int>(copy.site), copy.offset,
                   copy.bytes);
    if (launch.countOnly && !siteAt(copy.site).steersControl)
      continue;
    uint8_t *to = shared.data(copy.offset);
    std::memcpy(to, reinterpret_cast<const void *>(copy.source),
                copy.sourceBytes);
    std::memset(to + copy.sourceBytes, 0, copy.bytes - copy.sourceBytes);
  }
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + end);
  thread.groupEnds.erase(thread.groupEnds.begin(),
                         thread.groupEnds.begin() +
                             static_cast<ptrdiff_t>(groups));
  for (uint32_t &groupEnd : thread.groupEnds)
    groupEnd -= end;
}
