// What vdpbf16ps is worth on this CPU.
#ifndef PREFILL_RUNTIME_CPU_MULTIPLYRATES_H
#define PREFILL_RUNTIME_CPU_MULTIPLYRATES_H

namespace prefill::rt {

/// FLOP/s of one thread, from registers.
struct MultiplyRates {
  double fma; ///< f32 vfmadd231ps on 512 bits
  double dot; ///< vdpbf16ps on 512 bits
};

/// Takes about half a millisecond. The host must have both instructions.
MultiplyRates measureMultiplyRates();

/// Whether code that multiplies bf16 by f32 FMA beats code that does it by
/// vdpbf16ps. Zen 4 does twice as many FLOPs with vdpbf16ps; Emerald Rapids was
/// seen to do half as many as with FMA, where no AMX is offered, and on another
/// host about as many. It must be clear by a quarter: widening costs a little,
/// and what is chosen, and with it the last bits, should not change between
/// two starts.
bool prefersFma(const MultiplyRates &rates);

/// That of this CPU, measured when first asked for.
bool hostPrefersFma();

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CPU_MULTIPLYRATES_H
