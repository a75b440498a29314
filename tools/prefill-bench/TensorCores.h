// What the tensor cores of a GPU do at best.
#ifndef PREFILL_TOOLS_PREFILLBENCH_TENSORCORES_H
#define PREFILL_TOOLS_PREFILLBENCH_TENSORCORES_H

namespace prefill::bench {

/// FLOPs of a multiprocessor in a clock: dense f16 or bf16 products with f32
/// sums, those of the compiler's table of chips. What a GeForce does with f32
/// sums is half of what it does with f16 sums.
inline constexpr struct {
  int chip;
  double flopsPerClock;
} tensorCores[] = {{80, 2048}, {86, 512}, {89, 512}, {90, 4096}};

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_TENSORCORES_H
