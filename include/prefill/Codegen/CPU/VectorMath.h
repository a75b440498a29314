//===- VectorMath.h - f32 functions on vectors ------------------*- C++ -*-===//
// Polynomials instead of libm: kernels call nothing. Every value is
// vector<lanes x f32>.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CPU_VECTORMATH_H
#define PREFILL_CODEGEN_CPU_VECTORMATH_H

#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/Common/KernelBuilder.h"

namespace mlir::prefill {

/// e^x to about 1 ulp. x is clamped to [-87.3, 88.3], so that neither
/// infinity nor a denormal comes out.
Value emitExp(KernelBuilder &b, Value x);

/// 2^x for x <= 0: exactly 1 for 0, exactly 0 below -126, NaN for NaN. Relative
/// error below 2e-7. Any number of lanes, no instruction of one ISA.
Value emitExp2(KernelBuilder &b, Value x);

/// The same, as exact as weights of values of `elementType` need: relative
/// error below 9e-5 for bf16. Six to eight instructions where the ISA has
/// vreduceps and vscalefps (a denormal or 0 below -126), else nine to eleven.
Value emitExp2For(KernelBuilder &b, const CpuIsa &isa, Value x,
                  Type elementType);

/// x / (1 + e^-x).
Value emitSilu(KernelBuilder &b, Value x);

/// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the tanh form of GELU.
Value emitGeluTanh(KernelBuilder &b, Value x);

/// 1/sqrt(x) by square root and division; x is a scalar f32.
Value emitReciprocalSqrt(KernelBuilder &b, Value x);

/// An f32 rounded to the nearest integer, ties to even, plus `offset`, of which
/// each lane of vector<lanes x i32> has the lower 22 bits; defined for
/// magnitudes below 2^21. Anything else, NaN included, gives some bits.
Value emitNearestInteger(KernelBuilder &b, Value x, int64_t offset = 0);

/// Whether the ISA has no conversion to `elementType`.
inline bool roundsByBits(const CpuIsa &isa, Type elementType) {
  return elementType.isBF16() && !isa.hasBf16Dot;
}

/// The bits of f32 lanes rounded to nearest even to bf16, as vector<lanes x
/// i32>.
Value emitBF16Bits(KernelBuilder &b, Value x);

/// x rounded to nearest even to `elementType`, as vector<lanes x elementType>;
/// x itself for f32. A NaN stays one. arith.truncf would call the compiler's
/// runtime library on variants without a conversion to bf16.
Value emitTruncate(KernelBuilder &b, const CpuIsa &isa, Value x,
                   Type elementType);

/// The same, and back to f32.
Value emitRoundTo(KernelBuilder &b, const CpuIsa &isa, Value x,
                  Type elementType);

/// `low` and then `high`, rounded like emitTruncate: one vector of both where
/// the ISA rounds two at a time, else two.
SmallVector<Value> emitTruncatePair(KernelBuilder &b, const CpuIsa &isa,
                                    Value low, Value high, Type elementType);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_VECTORMATH_H
