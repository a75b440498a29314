// One resident weight, written from the rows of the weight program.
#ifndef PREFILL_RUNTIME_CORE_WEIGHTPACKING_H
#define PREFILL_RUNTIME_CORE_WEIGHTPACKING_H

#include "core/WeightProgram.h"

#include <cstddef>
#include <cstdint>

namespace prefill::rt {

/// Writes a weight in units that threads share: panels of a packed weight, rows
/// of any other. A panel, [ceil(K / k_pack)][panel_n][k_pack], is a transpose
/// of its rows in elements of k_pack numbers. Sixteen rows at a time are
/// evaluated and rounded a piece after the other into a buffer that stays in
/// the first-level cache, and from there go to whole cache lines of the panel,
/// so that memory is read and written once. Rows that become 8-bit integers are
/// evaluated once more before, for their largest number.
class WeightPacking {
public:
  WeightPacking(const module::Plan &plan, const WeightProgram &program,
                uint32_t weight);

  int64_t units() const { return numUnits; }
  int64_t unitBytes() const { return unitElements * elementBytes; }
  /// Bytes that a thread needs, 64-byte aligned; the same for every weight.
  static constexpr uint64_t scratchBytes() { return sizeof(Scratch); }

  /// Writes the unit's bytes to `target`, which holds zeros: what the input
  /// does not fill stays as it is. Thread safe with scratch of one's own.
  void write(int64_t unit, std::byte *target, std::byte *scratch) const;

private:
  /// Numbers of a row that are evaluated at once.
  static constexpr int64_t pieceElements = 1024;
  struct alignas(64) Scratch {
    float row[pieceElements];
    float factors[16]; ///< of the rows of `rounded`: RowQuantization::factor
    // A line more than a power of two: sixteen rows at such a pitch would share
    // the few sets of the cache that hold one column of them.
    std::byte rounded[16][pieceElements * sizeof(float) + 64];
  };

  float factorOf(int64_t row) const;
  void round(const float *values, int64_t count, float factor,
             std::byte *out) const;
  void writePanel(int64_t panel, std::byte *target, Scratch &scratch) const;
  void scatter(const std::byte *row, int64_t count, std::byte *out,
               int64_t stride) const;

  const WeightProgram &program;
  const module::Weight &weight;
  const module::PackSource *pack;
  uint32_t rows; ///< the weight whose rows are rounded and stored
  int64_t elementBytes, numUnits, unitElements;
  int64_t inputRows = 0, K = 0, panelsPerGroup = 1;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_WEIGHTPACKING_H
