#include "cpu/MultiplyRates.h"
#include "cpu/MultiplyLoops.h"

#include <algorithm>
#include <chrono>

using namespace prefill::rt;

#if defined(__x86_64__)
MultiplyRates prefill::rt::measureMultiplyRates() {
  // Slices of some 10 us, in turn, and the best of each: what else happens on
  // the core disturbs some of them, not all of one kind.
  constexpr int64_t repetitions = 1000;
  constexpr int slices = 10;
  auto rate = [](void (*loop)(int64_t), double flops) {
    auto start = std::chrono::steady_clock::now();
    loop(repetitions);
    std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - start;
    return flops * repetitions / seconds.count();
  };
  MultiplyRates rates = {};
  for (int slice = 0; slice < slices; ++slice) {
    rates.fma = std::max(rates.fma, rate(loopFmaZmm, flopsFmaZmm));
    rates.dot = std::max(rates.dot, rate(loopDotBf16Zmm, flopsDotBf16Zmm));
  }
  return rates;
}
#else
MultiplyRates prefill::rt::measureMultiplyRates() { return {}; }
#endif

bool prefill::rt::prefersFma(const MultiplyRates &rates) {
  return rates.fma > 1.25 * rates.dot;
}

bool prefill::rt::hostPrefersFma() {
  static const bool prefers = prefersFma(measureMultiplyRates());
  return prefers;
}
