// f32 to and from the 16-bit floats, bit-exact on every machine.
#ifndef PREFILL_CHECKPOINT_FLOATCONVERSION_H
#define PREFILL_CHECKPOINT_FLOATCONVERSION_H

#include <bit>
#include <cstdint>

namespace prefill::rt {

inline float bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

/// Round to nearest, ties to even; a NaN stays a NaN.
inline uint16_t floatToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float f16ToFloat(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16;
  uint32_t exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 0x1f)
    return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent == 0) { // zero or subnormal: mantissa * 2^-24, exact
    float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

/// Round to nearest, ties to even; overflow becomes infinity, a NaN stays a
/// NaN.
inline uint16_t floatToF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000)
    return sign | 0x7e00;
  if (bits >= 0x477ff000) // rounds to 65536 or more
    return sign | 0x7c00;
  if (bits < 0x38800000) { // below 2^-14: subnormal or zero
    // Adding 0.5 aligns the mantissa so that its last bit stands for 2^-24, and
    // the addition rounds to nearest even.
    float aligned = std::bit_cast<float>(bits) + 0.5f;
    return sign |
           static_cast<uint16_t>(std::bit_cast<uint32_t>(aligned) - 0x3f000000);
  }
  return sign | static_cast<uint16_t>(
                    (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13);
}

} // namespace prefill::rt

#endif // PREFILL_CHECKPOINT_FLOATCONVERSION_H
