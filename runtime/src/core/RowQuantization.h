// A row of a matrix as 8-bit integers.
#ifndef PREFILL_RUNTIME_CORE_ROWQUANTIZATION_H
#define PREFILL_RUNTIME_CORE_ROWQUANTIZATION_H

#include <bit>
#include <cstdint>

namespace prefill::rt {

/// Numbers are integers of [-127, 127] times a scale, which the largest of the
/// row decides.
struct RowQuantization {
  float scale;  ///< what the integer 1 stands for
  float factor; ///< what numbers are multiplied by before they are rounded

  /// `largest`: maximum of the row's absolute values, or NaN. The scale of a
  /// row that is not finite is not finite either. Rows of next to nothing, for
  /// which the factor would overflow, are zeros.
  static RowQuantization of(float largest) {
    if (largest < 0x1p-100f)
      return {0, 0};
    return {largest / 127, 127 / largest};
  }
};

/// The product rounded to the nearest integer of [-127, 127], ties to even; 127
/// for NaN.
inline int8_t quantize(float value, float factor) {
  float product = value * factor;
  // Comparisons with NaN are false.
  product = product < 127.0f ? product : 127.0f;
  product = product > -127.0f ? product : -127.0f;
  // At this size the last bit of a float stands for 1: the addition rounds, and
  // the low bits are the integer.
  return static_cast<int8_t>(std::bit_cast<uint32_t>(product + 0x1.8p23f));
}

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_ROWQUANTIZATION_H
