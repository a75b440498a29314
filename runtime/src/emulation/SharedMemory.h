// The shared memory of one block, with a shadow of who touched what.
#ifndef PREFILL_RUNTIME_EMULATION_SHAREDMEMORY_H
#define PREFILL_RUNTIME_EMULATION_SHAREDMEMORY_H

#include "emulation/Clocks.h"
#include "emulation/Report.h"

#include <memory>
#include <optional>
#include <vector>

namespace prefill::rt::emulation {

/// Why an access is wrong.
struct Hazard {
  Finding finding{};
  int64_t offset = 0; ///< of the first byte concerned
  int otherThread = -1, otherSite = -1;
  /// Of the earlier access in a race.
  bool otherWrote = false;
};

/// The shadow's cell is 2 bytes, the narrowest access that the compiler admits
/// (lib/Target/Emulation/Vocabulary.cpp), so nothing is lost against single
/// bytes. A cell has its last writer and, for each warp, its last readers: all
/// earlier reads of the warp happened before those, or are kept with them.
/// A chunk of 16 bytes that was only accessed as a whole has one history, in a
/// cell of its own, until a narrower access comes.
class SharedMemory {
public:
  explicit SharedMemory(const Clocks &clocks) : clocks(clocks) {}

  /// Makes room and poisons the contents; `clear`: the shadow as well.
  void beginBlock(int64_t bytes, int numWarps, bool clear);

  int64_t size() const { return bytes; }
  uint8_t *data(int64_t offset) { return memory.get() + offset; }

  /// Offsets and sizes are even and in bounds. `site` is a site's number.
  std::optional<Hazard> read(int thread, int site, int64_t offset, int count);
  std::optional<Hazard> write(int thread, int site, int64_t offset, int count);
  /// An asynchronous copy of `thread` may write from now on. Poisons the bytes.
  std::optional<Hazard> beginCopy(int thread, int site, int64_t offset,
                                  int count);
  /// The thread waited for it: from now on the thread itself may read, and
  /// others after they synchronised with it.
  void endCopy(int thread, int site, int64_t offset, int count);

private:
  static constexpr int cellBytes = 2, chunkBytes = 16,
                       chunkCells = chunkBytes / cellBytes;
  static constexpr uint16_t underWay = 0x8000;
  struct Cell {
    Stamp written = 0;
    uint16_t writer = 0; ///< with `underWay` while a copy is
    uint16_t site = 0;
    uint32_t readers = 0; ///< warps that read since
  };
  struct Readers {
    Stamp stamp = 0;
    uint32_t lanes = 0;
    uint16_t site = 0;
  };
  std::optional<Hazard> markWritten(int thread, int site, int64_t offset,
                                    int count, uint16_t flags);
  std::optional<Hazard> unorderedReader(int thread, int64_t index) const;
  /// The cells that stand for [offset, offset + count): [first, end).
  struct Range {
    int64_t first, end;
  };
  Range cellsOf(int64_t offset, int count);
  void split(int64_t chunk);
  /// Of a cell's first byte.
  int64_t offsetOf(int64_t index) const {
    return index < numChunks ? index * chunkBytes
                             : (index - numChunks) * cellBytes;
  }

  const Clocks &clocks;
  int64_t bytes = 0;
  int numWarps = 0;
  struct Free {
    void operator()(uint8_t *memory) const;
  };
  std::unique_ptr<uint8_t, Free> memory;
  int64_t numChunks = 0;
  std::vector<Cell> cells;      ///< of the whole chunks, then of 2 bytes each
  std::vector<Readers> readers; ///< [cell][warp]
  std::vector<uint8_t> whole;   ///< by chunk: it has one history
};

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_SHAREDMEMORY_H
