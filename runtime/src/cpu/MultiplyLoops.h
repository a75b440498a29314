// Loops over registers of independent multiply-accumulates: what a CPU's
// multiply units can do.
#ifndef PREFILL_RUNTIME_CPU_MULTIPLYLOOPS_H
#define PREFILL_RUNTIME_CPU_MULTIPLYLOOPS_H

#include <cstdint>

namespace prefill::rt {

/// 24 accumulators, 12 where there are 16 registers. The host must have the
/// instructions.
void loopFmaYmm(int64_t repetitions);
void loopFmaZmm(int64_t repetitions);
void loopDotBf16Zmm(int64_t repetitions);
void loopDotInt8Ymm(int64_t repetitions); ///< AVX-VNNI's
void loopDotInt8Zmm(int64_t repetitions);

/// Of one repetition. A multiply-accumulate is two operations; vdpbf16ps does
/// two in a lane, vpdpbusd four.
inline constexpr double flopsFmaYmm = 12 * 8 * 2;
inline constexpr double flopsFmaZmm = 24 * 16 * 2;
inline constexpr double flopsDotBf16Zmm = 24 * 16 * 4;
inline constexpr double flopsDotInt8Ymm = 12 * 8 * 8;
inline constexpr double flopsDotInt8Zmm = 24 * 16 * 8;

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CPU_MULTIPLYLOOPS_H
