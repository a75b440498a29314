#include "cpu/MultiplyLoops.h"

#if defined(__x86_64__)
#include <immintrin.h>

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

// One factor is 0: the accumulators stay finite for ever.
__attribute__((target("avx2,fma"))) void
prefill::rt::loopFmaYmm(int64_t repetitions) {
  __m256 x = _mm256_setzero_ps(), y = _mm256_set1_ps(0.5f);
  PREFILL_ACCUMULATORS(__m256, a, y);
  for (int64_t i = 0; i < repetitions; ++i)
    PREFILL_TWELVE("vfmadd231ps", "x", a, x, y);
}

__attribute__((target("avx512f"))) void
prefill::rt::loopFmaZmm(int64_t repetitions) {
  __m512 x = _mm512_setzero_ps(), y = _mm512_set1_ps(0.5f);
  PREFILL_ACCUMULATORS(__m512, a, y);
  PREFILL_ACCUMULATORS(__m512, b, y);
  for (int64_t i = 0; i < repetitions; ++i) {
    PREFILL_TWELVE("vfmadd231ps", "v", a, x, y);
    PREFILL_TWELVE("vfmadd231ps", "v", b, x, y);
  }
}

__attribute__((target("avx512f,avx512bf16"))) void
prefill::rt::loopDotBf16Zmm(int64_t repetitions) {
  __m512 x = _mm512_setzero_ps(), y = _mm512_set1_ps(0.5f);
  PREFILL_ACCUMULATORS(__m512, a, y);
  PREFILL_ACCUMULATORS(__m512, b, y);
  for (int64_t i = 0; i < repetitions; ++i) {
    PREFILL_TWELVE("vdpbf16ps", "v", a, x, y);
    PREFILL_TWELVE("vdpbf16ps", "v", b, x, y);
  }
}

// Of two encodings an assembler takes AVX-512's, which a CPU with AVX-VNNI
// alone does not have, unless {vex} says otherwise.
__attribute__((target("avx2"))) void
prefill::rt::loopDotInt8Ymm(int64_t repetitions) {
  __m256i x = _mm256_setzero_si256(), y = _mm256_set1_epi8(3);
  PREFILL_ACCUMULATORS(__m256i, a, y);
  for (int64_t i = 0; i < repetitions; ++i)
    PREFILL_TWELVE("%{vex%} vpdpbusd", "x", a, x, y);
}

__attribute__((target("avx512f"))) void
prefill::rt::loopDotInt8Zmm(int64_t repetitions) {
  __m512i x = _mm512_setzero_si512(), y = _mm512_set1_epi32(3);
  PREFILL_ACCUMULATORS(__m512i, a, y);
  PREFILL_ACCUMULATORS(__m512i, b, y);
  for (int64_t i = 0; i < repetitions; ++i) {
    PREFILL_TWELVE("vpdpbusd", "v", a, x, y);
    PREFILL_TWELVE("vpdpbusd", "v", b, x, y);
  }
}

#endif
