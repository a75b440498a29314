#include "emulation/SharedMemory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace prefill::rt::emulation;

/// NaN in f16, bf16 and f32.
static constexpr int poison = 0xff;

void SharedMemory::Free::operator()(uint8_t *memory) const {
  std::free(memory);
}

void SharedMemory::beginBlock(int64_t count, int warps, bool clear) {
  if (count != bytes || warps != numWarps || !memory || clear) {
    // Aligned as the window is, and no more.
    constexpr size_t alignment = 256;
    size_t rounded = (static_cast<size_t>(count) + alignment) / alignment;
    if (count != bytes || !memory)
      memory.reset(static_cast<uint8_t *>(
          std::aligned_alloc(alignment, rounded * alignment)));
    bytes = count;
    numWarps = warps;
    numChunks = (count + chunkBytes - 1) / chunkBytes;
    auto numCells = static_cast<size_t>(numChunks * (1 + chunkCells));
    cells.assign(numCells, {});
    readers.assign(numCells * warps, {});
    whole.assign(static_cast<size_t>(numChunks), 1);
  }
  std::memset(memory.get(), poison, static_cast<size_t>(bytes));
}

/// The chunk's cells go their own ways from now on.
void SharedMemory::split(int64_t chunk) {
  whole[chunk] = 0;
  int64_t first = numChunks + chunk * chunkCells;
  for (int64_t index = first; index < first + chunkCells; ++index) {
    cells[index] = cells[chunk];
    std::copy_n(readers.begin() + chunk * numWarps, numWarps,
                readers.begin() + index * numWarps);
  }
}

SharedMemory::Range SharedMemory::cellsOf(int64_t offset, int count) {
  int64_t chunk = offset / chunkBytes;
  Range parts{numChunks + offset / cellBytes,
              numChunks + (offset + count) / cellBytes};
  if (count == chunkBytes && offset % chunkBytes == 0)
    return whole[chunk] ? Range{chunk, chunk + 1} : parts;
  for (; chunk * chunkBytes < offset + count; ++chunk)
    if (whole[chunk])
      split(chunk);
  return parts;
}

std::optional<Hazard> SharedMemory::read(int thread, int site, int64_t offset,
                                         int count) {
  int warp = thread / warpLanes, lane = thread % warpLanes;
  Stamp now = clocks.now(warp);
  for (auto [index, end] = cellsOf(offset, count); index < end; ++index) {
    Cell &cell = cells[index];
    int writer = cell.writer & ~underWay;
    if (cell.written < clocks.first())
      return Hazard{Finding::unwrittenRead, offsetOf(index)};
    if (cell.writer & underWay)
      return Hazard{Finding::copyNotAwaited, offsetOf(index), writer, cell.site,
                    true};
    if (!clocks.ordered(thread, writer, cell.written))
      return Hazard{Finding::race, offsetOf(index), writer, cell.site, true};

    Readers &record = readers[index * numWarps + warp];
    bool first = !(cell.readers >> warp & 1) || record.stamp < clocks.first();
    cell.readers |= 1u << warp;
    if (!first && record.stamp != now)
      for (uint32_t rest = record.lanes; rest && !first; rest &= rest - 1) {
        int other = warp * warpLanes + __builtin_ctz(rest);
        if (!clocks.ordered(thread, other, record.stamp))
          break;
        first = !(rest & (rest - 1)); // all of them lie in the past
      }
    record.lanes = first ? 1u << lane : record.lanes | 1u << lane;
    record.stamp = now;
    record.site = static_cast<uint16_t>(site);
  }
  return std::nullopt;
}

/// A reader of the cell that may still be reading.
std::optional<Hazard> SharedMemory::unorderedReader(int thread,
                                                    int64_t index) const {
  for (uint32_t warps = cells[index].readers; warps; warps &= warps - 1) {
    int warp = __builtin_ctz(warps);
    if (warp >= numWarps)
      break;
    const Readers &record = readers[index * numWarps + warp];
    if (record.stamp < clocks.first())
      continue;
    for (uint32_t lanes = record.lanes; lanes; lanes &= lanes - 1) {
      int other = warp * warpLanes + __builtin_ctz(lanes);
      if (!clocks.ordered(thread, other, record.stamp))
        return Hazard{Finding::race, offsetOf(index), other, record.site,
                      false};
      if (warp != thread / warpLanes)
        break; // another warp is ordered as a whole
    }
  }
  return std::nullopt;
}

std::optional<Hazard> SharedMemory::markWritten(int thread, int site,
                                                int64_t offset, int count,
                                                uint16_t flags) {
  Stamp now = clocks.now(thread / warpLanes);
  for (auto [index, end] = cellsOf(offset, count); index < end; ++index) {
    Cell &cell = cells[index];
    if (cell.written >= clocks.first()) {
      int writer = cell.writer & ~underWay;
      if (cell.writer & underWay)
        return Hazard{Finding::writeDuringCopy, offsetOf(index), writer,
                      cell.site, true};
      if (!clocks.ordered(thread, writer, cell.written))
        return Hazard{Finding::race, offsetOf(index), writer, cell.site, true};
      if (auto hazard = unorderedReader(thread, index))
        return hazard;
    }
    cell.written = now;
    cell.writer = static_cast<uint16_t>(thread) | flags;
    cell.site = static_cast<uint16_t>(site);
    cell.readers = 0;
  }
  // All parts of the chunk have the same history again.
  if (int64_t chunk = offset / chunkBytes;
      count == chunkBytes && offset % chunkBytes == 0 && !whole[chunk]) {
    whole[chunk] = 1;
    cells[chunk] = cells[numChunks + chunk * chunkCells];
  }
  return std::nullopt;
}

std::optional<Hazard> SharedMemory::write(int thread, int site, int64_t offset,
                                          int count) {
  return markWritten(thread, site, offset, count, 0);
}

std::optional<Hazard> SharedMemory::beginCopy(int thread, int site,
                                              int64_t offset, int count) {
  if (auto hazard = markWritten(thread, site, offset, count, underWay))
    return hazard;
  std::memset(data(offset), poison, static_cast<size_t>(count));
  return std::nullopt;
}

void SharedMemory::endCopy(int thread, int site, int64_t offset, int count) {
  Stamp now = clocks.now(thread / warpLanes);
  for (auto [index, end] = cellsOf(offset, count); index < end; ++index)
    cells[index] = {now, static_cast<uint16_t>(thread),
                    static_cast<uint16_t>(site), 0};
}
