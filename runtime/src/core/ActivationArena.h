// The activation buffers of a schedule.
#ifndef PREFILL_RUNTIME_CORE_ACTIVATIONARENA_H
#define PREFILL_RUNTIME_CORE_ACTIVATIONARENA_H

#include "core/Memory.h"
#include "core/ModuleFile.h"

#include <cstdint>
#include <string>
#include <vector>

namespace prefill::rt {

/// Where each buffer lies for a padded number of rows. Buffers with disjoint
/// lifetimes share bytes as the compiler planned:
///
///   tokens buffer   row_offset * M_pad
///   logits buffer   row_offset * R_pad + base, base = the tokens part rounded
///                   up to 64 bytes
///
/// In poison mode every buffer has a place of its own between canaries, so that
/// a kernel that reads what it has not been given, or writes past its buffer,
/// is found out even where the plan puts a live neighbour.
class ActivationArena {
public:
  /// Evaluates the schedule and takes the memory (class activation_peak).
  /// Contents are undefined afterwards, NaN (int8Pattern in 8-bit integers) in
  /// poison mode. Grows, never shrinks.
  Result<void> prepare(const module::Schedule &schedule, int64_t rowsPad,
                       int64_t logitRowsPad, bool poison, Allocator &allocator);

  DeviceAddress buffer(uint32_t index) const {
    return storage.address() + offsets[index];
  }
  /// Of the rows that prepare() was told.
  uint64_t bytes(const module::Buffer &buffer) const {
    return static_cast<uint64_t>(buffer.row_bytes()) * rowsOf(buffer);
  }

  // ---- Poison mode.

  /// NaN (int8Pattern in 8-bit integers) into the rows of every buffer from
  /// `rows` (or `logitRows`) on: rows that exist only for padding must never
  /// matter.
  Result<void> poisonPaddedRows(const module::Schedule &schedule, int64_t rows,
                                int64_t logitRows);
  /// "before buffer 'x'", "behind buffer 'x'", or empty: where a canary died.
  Result<std::string> damage(const module::Schedule &schedule) const;

private:
  int64_t rowsOf(const module::Buffer &buffer) const;

  DeviceMemory *memory = nullptr; ///< of the storage
  Allocation storage;
  std::vector<uint64_t> offsets;
  int64_t rowsPad = 0, logitRowsPad = 0;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_ACTIVATIONARENA_H
