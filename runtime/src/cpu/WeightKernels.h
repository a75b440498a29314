// The inner loops of loading weights, for the instructions of this CPU.
#ifndef PREFILL_RUNTIME_CPU_WEIGHTKERNELS_H
#define PREFILL_RUNTIME_CPU_WEIGHTKERNELS_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace prefill::rt {

/// Every function gives the same bits on every CPU. Pointers to elements of a
/// checkpoint need not be aligned.
struct WeightKernels {
  /// The rows of a block that transpose() reads.
  static constexpr int64_t blockRows = 16;

  /// f32 out[i] = bf16 in[i]; exact.
  void (*bf16ToF32)(const std::byte *in, int64_t count, float *out);
  /// bf16 out[i] = in[i], rounded as floatToBf16 does.
  void (*f32ToBf16)(const float *in, int64_t count, uint16_t *out);
  /// values[i] *= gain[i].
  void (*scale)(const float *gain, int64_t count, float *values);
  /// The greatest of `least`, which is not negative, and |in[i]|; NaN if one of
  /// them is.
  float (*largest)(const float *in, int64_t count, float least);
  /// int8 out[i] = quantize(in[i], factor).
  void (*f32ToInt8)(const float *in, float factor, int64_t count, int8_t *out);
  /// Unit i (32 bits) of row n goes to out + i * stride + 4 * n, for the 16
  /// rows n at `in + n * pitch` (bytes). Whole cache lines are written where
  /// out is a multiple of 64, one after the other.
  void (*transpose)(const std::byte *in, int64_t pitch, int64_t count,
                    std::byte *out, int64_t stride);
};

/// Those that this CPU runs, the fastest last: for what every x86-64 has, AVX2,
/// AVX-512.
std::vector<const WeightKernels *> supportedWeightKernels();

/// The fastest.
const WeightKernels &weightKernels();

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CPU_WEIGHTKERNELS_H
