#include "cpu/WeightKernels.h"
#include "core/RowQuantization.h"
#include "cpu/IsaVariant.h"
#include "prefill/checkpoint/FloatConversion.h"

#include <algorithm>
#include <bit>
#include <cstring>

using namespace prefill::rt;

namespace {

// The loops are written once; inlined into a function for an instruction set
// they are vectorised for it.
#define PREFILL_INLINE [[gnu::always_inline]] inline

PREFILL_INLINE void bf16ToF32Loop(const std::byte *in, int64_t count,
                                  float *out) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, in + i * sizeof bits, sizeof bits);
    out[i] = bf16ToFloat(bits);
  }
}

PREFILL_INLINE void f32ToBf16Loop(const float *in, int64_t count,
                                  uint16_t *out) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = floatToBf16(in[i]);
}

PREFILL_INLINE void scaleLoop(const float *gain, int64_t count, float *values) {
  for (int64_t i = 0; i < count; ++i)
    values[i] *= gain[i];
}

/// Without their sign, f32 numbers are in the order of their bits, NaN above
/// infinity. Integers may be compared in any order, so that lanes have maxima
/// of their own.
PREFILL_INLINE float largestLoop(const float *in, int64_t count, float least) {
  auto bits = std::bit_cast<int32_t>(least);
  for (int64_t i = 0; i < count; ++i)
    bits = std::max(bits, std::bit_cast<int32_t>(in[i]) & 0x7fffffff);
  return std::bit_cast<float>(bits);
}

PREFILL_INLINE void f32ToInt8Loop(const float *in, float factor, int64_t count,
                                  int8_t *out) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = quantize(in[i], factor);
}

using Vector4 = uint32_t __attribute__((vector_size(16)));

/// 4 x 4 blocks in registers; four of them fill a cache line of every unit. The
/// loop is bound by memory with 16-byte vectors already.
PREFILL_INLINE void transposeLoop(const std::byte *in, int64_t pitch,
                                  int64_t count, std::byte *out,
                                  int64_t stride) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (int64_t n = 0; n < WeightKernels::blockRows; n += 4) {
      Vector4 row[4];
      for (int64_t k = 0; k < 4; ++k)
        std::memcpy(&row[k], in + (n + k) * pitch + i * 4, sizeof row[k]);
      Vector4 low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
      Vector4 high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
      Vector4 low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
      Vector4 high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
      Vector4 unit[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                         __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                         __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                         __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
      for (int64_t k = 0; k < 4; ++k)
        std::memcpy(out + (i + k) * stride + n * 4, &unit[k], sizeof unit[k]);
    }
  for (; i < count; ++i)
    for (int64_t n = 0; n < WeightKernels::blockRows; ++n)
      std::memcpy(out + i * stride + n * 4, in + n * pitch + i * 4, 4);
}

#define PREFILL_WEIGHT_KERNELS(SUFFIX, ATTRIBUTE)                              \
  ATTRIBUTE void bf16ToF32##SUFFIX(const std::byte *in, int64_t count,         \
                                   float *out) {                               \
    bf16ToF32Loop(in, count, out);                                             \
  }                                                                            \
  ATTRIBUTE void f32ToBf16##SUFFIX(const float *in, int64_t count,             \
                                   uint16_t *out) {                            \
    f32ToBf16Loop(in, count, out);                                             \
  }                                                                            \
  ATTRIBUTE void scale##SUFFIX(const float *gain, int64_t count,               \
                               float *values) {                                \
    scaleLoop(gain, count, values);                                            \
  }                                                                            \
  ATTRIBUTE float largest##SUFFIX(const float *in, int64_t count,              \
                                  float least) {                               \
    return largestLoop(in, count, least);                                      \
  }                                                                            \
  ATTRIBUTE void f32ToInt8##SUFFIX(const float *in, float factor,              \
                                   int64_t count, int8_t *out) {               \
    f32ToInt8Loop(in, factor, count, out);                                     \
  }                                                                            \
  ATTRIBUTE void transpose##SUFFIX(const std::byte *in, int64_t pitch,         \
                                   int64_t count, std::byte *out,              \
                                   int64_t stride) {                           \
    transposeLoop(in, pitch, count, out, stride);                              \
  }                                                                            \
  constexpr WeightKernels kernels##SUFFIX = {                                  \
      bf16ToF32##SUFFIX, f32ToBf16##SUFFIX, scale##SUFFIX,                     \
      largest##SUFFIX,   f32ToInt8##SUFFIX, transpose##SUFFIX};

PREFILL_WEIGHT_KERNELS(Generic, )
#if defined(__x86_64__)
PREFILL_WEIGHT_KERNELS(Avx2, __attribute__((target("avx2"))))
PREFILL_WEIGHT_KERNELS(
    Avx512, __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))))
#endif

} // namespace

std::vector<const WeightKernels *> prefill::rt::supportedWeightKernels() {
  std::vector<const WeightKernels *> supported = {&kernelsGeneric};
#if defined(__x86_64__)
  if (hostSupports(IsaVariant::avx2))
    supported.push_back(&kernelsAvx2);
  if (hostSupports(IsaVariant::avx512))
    supported.push_back(&kernelsAvx512);
#endif
  return supported;
}

const WeightKernels &prefill::rt::weightKernels() {
  static const WeightKernels &chosen = *supportedWeightKernels().back();
  return chosen;
}
