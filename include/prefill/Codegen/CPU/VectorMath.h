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

/// x / (1 + e^-x).
Value emitSilu(KernelBuilder &b, Value x);

/// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the tanh form of GELU.
Value emitGeluTanh(KernelBuilder &b, Value x);

/// 1/sqrt(x) by square root and division; x is a scalar f32.
Value emitReciprocalSqrt(KernelBuilder &b, Value x);

/// x rounded to nearest even to `elementType`, as vector<lanes x elementType>;
/// x itself for f32. A NaN stays one. arith.truncf would call the compiler's
/// runtime library on variants without a conversion to bf16.
Value emitTruncate(KernelBuilder &b, const CpuIsa &isa, Value x,
                   Type elementType);

/// The same, and back to f32.
Value emitRoundTo(KernelBuilder &b, const CpuIsa &isa, Value x,
                  Type elementType);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_VECTORMATH_H
