// What the emulator finds wrong with a kernel.
#ifndef PREFILL_RUNTIME_EMULATION_REPORT_H
#define PREFILL_RUNTIME_EMULATION_REPORT_H

#include <cstdint>
#include <string>

namespace prefill::rt::emulation {

enum class Finding {
  globalOutOfBounds,
  sharedOutOfBounds,
  misaligned,
  readOnly,            ///< a store to an allocation that is only read
  unwrittenRead,       ///< shared memory that no thread of the block wrote
  copyNotAwaited,      ///< read of bytes whose cp.async is under way
  writeDuringCopy,     ///< write or copy onto bytes that are being copied
  race,                ///< two accesses of shared memory, not ordered
  divergentCollective, ///< lanes of a warp at different operations
  memberMask,          ///< the mask of a collective is wrong
  invalidOperand,      ///< a barrier's number, a copy's size
  barrierMisses,       ///< threads left the kernel without the barrier
  deadlock,
  openCopies, ///< cp.async that nobody waited for at the thread's end
  globalRace, ///< two blocks at the same byte, one of them writes
};

/// A lower-case name, for example "shared-memory race".
const char *findingName(Finding finding);

struct Report {
  Finding finding{};
  std::string kernel;
  int64_t block = 0;
  int thread = 0;
  int otherThread = -1;  ///< -1: none
  std::string site;      ///< of the operation that found it
  std::string otherSite; ///< of the earlier access, "" when there is none
  std::string detail;

  /// One line: kernel, block, thread, site, finding and detail.
  std::string message() const;
};

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_REPORT_H
