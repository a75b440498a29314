#include "ProbeLoops.h"

#include <immintrin.h>

using namespace prefill::bench;
using prefill::rt::hostSupports;
using prefill::rt::IsaVariant;

// Inline assembly: a compiler could otherwise fold constants or rearrange the
// loop. An asm statement takes 30 operands, and an accumulator counts twice:
// twelve accumulators a statement.
#define PREFILL_TWELVE(INSTRUCTION, CONSTRAINT, A, X, Y)                       \
  asm volatile(                                                                \
      INSTRUCTION                                                              \
      " %12, %13, %0\n\t" INSTRUCTION " %12, %13, %1\n\t" INSTRUCTION          \
      " %12, %13, %2\n\t" INSTRUCTION " %12, %13, %3\n\t" INSTRUCTION          \
      " %12, %13, %4\n\t" INSTRUCTION " %12, %13, %5\n\t" INSTRUCTION          \
      " %12, %13, %6\n\t" INSTRUCTION " %12, %13, %7\n\t" INSTRUCTION          \
      " %12, %13, %8\n\t" INSTRUCTION " %12, %13, %9\n\t" INSTRUCTION          \
      " %12, %13, %10\n\t" INSTRUCTION " %12, %13, %11"                        \
      : "+" CONSTRAINT(A##0), "+" CONSTRAINT(A##1), "+" CONSTRAINT(A##2),      \
        "+" CONSTRAINT(A##3), "+" CONSTRAINT(A##4), "+" CONSTRAINT(A##5),      \
        "+" CONSTRAINT(A##6), "+" CONSTRAINT(A##7), "+" CONSTRAINT(A##8),      \
        "+" CONSTRAINT(A##9), "+" CONSTRAINT(A##10), "+" CONSTRAINT(A##11)     \
      : CONSTRAINT(X), CONSTRAINT(Y))
#define PREFILL_ACCUMULATORS(TYPE, A, X)                                       \
  TYPE A##0 = X, A##1 = X, A##2 = X, A##3 = X, A##4 = X, A##5 = X, A##6 = X,   \
       A##7 = X, A##8 = X, A##9 = X, A##10 = X, A##11 = X

namespace {

// One factor is 0: the accumulators stay finite for ever.
__attribute__((target("avx2,fma"))) void loopFmaYmm(int64_t repetitions) {
  __m256 x = _mm256_setzero_ps(), y = _mm256_set1_ps(0.5f);
  PREFILL_ACCUMULATORS(__m256, a, y);
  for (int64_t i = 0; i < repetitions; ++i)
    PREFILL_TWELVE("vfmadd231ps", "x", a, x, y);
}

__attribute__((target("avx512f"))) void loopFmaZmm(int64_t repetitions) {
  __m512 x = _mm512_setzero_ps(), y = _mm512_set1_ps(0.5f);
  PREFILL_ACCUMULATORS(__m512, a, y);
  PREFILL_ACCUMULATORS(__m512, b, y);
  for (int64_t i = 0; i < repetitions; ++i) {
    PREFILL_TWELVE("vfmadd231ps", "v", a, x, y);
    PREFILL_TWELVE("vfmadd231ps", "v", b, x, y);
  }
}

__attribute__((target("avx512f,avx512bf16"))) void
loopDotBf16Zmm(int64_t repetitions) {
  __m512 x = _mm512_setzero_ps(), y = _mm512_set1_ps(0.5f);
  PREFILL_ACCUMULATORS(__m512, a, y);
  PREFILL_ACCUMULATORS(__m512, b, y);
  for (int64_t i = 0; i < repetitions; ++i) {
    PREFILL_TWELVE("vdpbf16ps", "v", a, x, y);
    PREFILL_TWELVE("vdpbf16ps", "v", b, x, y);
  }
}

/// What ldtilecfg reads: every tile of 16 rows x 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, startRow = 0, reserved[14] = {};
  uint16_t columnBytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

/// A tile's product takes 16 cycles of the unit and about 52 to be there:
/// accumulators of four in flight, as kernels have them, 2 x 2 of operands.
/// No clobbers: no compiler uses tiles by itself.
void loopTileBf16(int64_t repetitions) {
  static const TileConfig config;
  asm volatile("ldtilecfg %0\n\t"
               "tilezero %%tmm0\n\ttilezero %%tmm1\n\t"
               "tilezero %%tmm2\n\ttilezero %%tmm3\n\t"
               "tilezero %%tmm4\n\ttilezero %%tmm5\n\t"
               "tilezero %%tmm6\n\ttilezero %%tmm7"
               :
               : "m"(config));
  for (int64_t i = 0; i < repetitions; ++i)
    asm volatile("tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
                 "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
                 "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
                 "tdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::);
  asm volatile("tilerelease" ::);
}

/// Eight loads a turn from each of `numStreams` parts: several streams keep
/// more of the hardware's prefetchers busy than one.
constexpr size_t numStreams = 4;

__attribute__((target("avx512f"))) void readZmm(const std::byte *memory,
                                                size_t bytes) {
  size_t part = bytes / numStreams;
  for (size_t at = 0; at < part; at += 256)
    for (size_t stream = 0; stream < numStreams; ++stream) {
      const std::byte *p = memory + stream * part + at;
      asm volatile("vmovaps (%0), %%zmm0\n\t"
                   "vmovaps 64(%0), %%zmm1\n\t"
                   "vmovaps 128(%0), %%zmm2\n\t"
                   "vmovaps 192(%0), %%zmm3"
                   :
                   : "r"(p)
                   : "memory", "xmm0", "xmm1", "xmm2", "xmm3");
    }
}

__attribute__((target("avx2"))) void readYmm(const std::byte *memory,
                                             size_t bytes) {
  size_t part = bytes / numStreams;
  for (size_t at = 0; at < part; at += 128)
    for (size_t stream = 0; stream < numStreams; ++stream) {
      const std::byte *p = memory + stream * part + at;
      asm volatile("vmovaps (%0), %%ymm0\n\t"
                   "vmovaps 32(%0), %%ymm1\n\t"
                   "vmovaps 64(%0), %%ymm2\n\t"
                   "vmovaps 96(%0), %%ymm3"
                   :
                   : "r"(p)
                   : "memory", "xmm0", "xmm1", "xmm2", "xmm3");
    }
}

} // namespace

#undef PREFILL_TWELVE
#undef PREFILL_ACCUMULATORS

prefill::bench::ArithmeticLoop prefill::bench::arithmeticLoop(Peak peak) {
  // A multiply-accumulate is two operations; vdpbf16ps does two in a lane,
  // tdpbf16ps 32 for each of 16 x 16 elements.
  switch (peak) {
  case Peak::tileBf16:
    return {loopTileBf16, 4 * 16 * 16 * 32 * 2.0};
  case Peak::dotBf16Zmm:
    return {loopDotBf16Zmm, 24 * 16 * 4.0};
  case Peak::fmaZmm:
    return {loopFmaZmm, 24 * 16 * 2.0};
  default:
    return {loopFmaYmm, 12 * 8 * 2.0};
  }
}

void prefill::bench::readStream(const std::byte *memory, size_t bytes) {
  static const bool wide = hostSupports(IsaVariant::avx512);
  if (wide)
    readZmm(memory, bytes);
  else
    readYmm(memory, bytes);
}
