//===- VectorMath.cpp - f32 functions on vectors --------------------------===//
#include "prefill/Codegen/CPU/VectorMath.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::prefill;

static int64_t lanesOf(Value x) {
  return cast<VectorType>(x.getType()).getNumElements();
}

// e^x = 2^n e^r with n = round(x log2 e), |r| <= ln2 / 2. The Taylor series to
// r^7 leaves 0.347^8 / 8! = 5e-9. n ln2 is subtracted in two parts, the first
// of which has so few bits that n times it is exact (Cody and Waite).
Value prefill::emitExp(KernelBuilder &b, Value x) {
  int64_t lanes = lanesOf(x);
  auto splat = [&](double value) { return b.splatF32(value, lanes); };
  auto clamp = [&](arith::CmpFPredicate keep, double bound) {
    Value limit = splat(bound);
    Value inside = arith::CmpFOp::create(b, keep, x, limit);
    x = arith::SelectOp::create(b, inside, x, limit);
  };
  clamp(arith::CmpFPredicate::OLT, 88.3);
  clamp(arith::CmpFPredicate::OGT, -87.3);
  Value n = math::RoundEvenOp::create(
      b, arith::MulFOp::create(b, x, splat(1.4426950408889634)));
  Value r = math::FmaOp::create(b, n, splat(-0.693359375), x);
  r = math::FmaOp::create(b, n, splat(2.12194440054690583e-4), r);
  Value p = splat(1.0 / 5040);
  for (double factorial : {720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0})
    p = math::FmaOp::create(b, p, r, splat(1.0 / factorial));
  auto intType = VectorType::get({lanes}, b.getI32Type());
  Value exponent = arith::AddIOp::create(
      b, arith::FPToSIOp::create(b, intType, n), b.splatI32(127, lanes));
  Value bits = arith::ShLIOp::create(b, exponent, b.splatI32(23, lanes));
  return arith::MulFOp::create(
      b, p, vector::BitCastOp::create(b, b.vectorF32(lanes), bits));
}

/// 2^r for r in [0, 1], exactly 1 for 0. The coefficients are minimax for the
/// relative error with a constant term of 1; over all multiples of 2^-24, with
/// the rounding of every step in f32, it is
///   degree 3: 8.6e-5, a 23rd of half a last place of bf16 (1.95e-3)
///   degree 5: 1.5e-7, 2.5 units of 2^-24
static Value emitExp2OfFraction(KernelBuilder &b, Value r, Type elementType) {
  static constexpr double kDegree3[] = {7.706705e-2, 2.2764498e-1, 6.9511679e-1,
                                        1.0};
  static constexpr double kDegree5[] = {1.8671302e-3, 9.0170301e-3,
                                        5.5799913e-2, 2.4016445e-1,
                                        6.9315131e-1, 1.0};
  ArrayRef<double> coefficients =
      elementType.isBF16() ? ArrayRef(kDegree3) : ArrayRef(kDegree5);
  int64_t lanes = lanesOf(r);
  Value p = b.splatF32(coefficients.front(), lanes);
  for (double coefficient : coefficients.drop_front())
    p = math::FmaOp::create(b, p, r, b.splatF32(coefficient, lanes));
  return p;
}

// 2^x = 2^n 2^r with n = floor(x). The bits of 2^n are its exponent, those of 0
// where n = -127 and x is cut off. A NaN reaches the product by 2^r.
static Value emitPortableExp2(KernelBuilder &b, Value x, Type elementType) {
  int64_t lanes = lanesOf(x);
  Value smallest = b.splatF32(-127.0, lanes);
  // One instruction on x86, which keeps a NaN.
  Value cutOff = arith::SelectOp::create(
      b, arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, smallest, x),
      smallest, x);
  Value n = math::FloorOp::create(b, cutOff);
  Value p =
      emitExp2OfFraction(b, arith::SubFOp::create(b, cutOff, n), elementType);
  Value bits = arith::ShLIOp::create(b, emitNearestInteger(b, n, 127),
                                     b.splatI32(23, lanes));
  return arith::MulFOp::create(
      b, p, vector::BitCastOp::create(b, b.vectorF32(lanes), bits));
}

Value prefill::emitExp2(KernelBuilder &b, Value x) {
  return emitPortableExp2(b, x, b.getF32Type());
}

static Value callIntrinsic(KernelBuilder &b, Type type, StringRef name,
                           ValueRange operands) {
  return LLVM::CallIntrinsicOp::create(b, type, b.getStringAttr(name), operands)
      .getResult(0);
}

// vreduceps gives x - floor(x), vscalefps multiplies by 2^floor(x), and gives 0
// for -inf.
Value prefill::emitExp2For(KernelBuilder &b, const CpuIsa &isa, Value x,
                           Type elementType) {
  constexpr int64_t kZmmLanes = 16;
  int64_t lanes = lanesOf(x);
  if (isa.lanes != kZmmLanes || lanes != kZmmLanes)
    return emitPortableExp2(b, x, elementType);
  auto i32 = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, b.getI32IntegerAttr(value));
  };
  Value allLanes = arith::ConstantOp::create(b, b.getI16IntegerAttr(-1));
  Value currentRounding = i32(4);
  Value roundDown = i32(0x09); // no fraction bits kept, no exceptions
  Value r = callIntrinsic(b, x.getType(), "llvm.x86.avx512.mask.reduce.ps.512",
                          {x, roundDown, x, allLanes, currentRounding});
  Value p = emitExp2OfFraction(b, r, elementType);
  return callIntrinsic(b, x.getType(), "llvm.x86.avx512.mask.scalef.ps.512",
                       {p, x, x, allLanes, currentRounding});
}

/// x / (1 + e^-y).
static Value timesSigmoid(KernelBuilder &b, Value x, Value y) {
  Value exp = emitExp(b, arith::NegFOp::create(b, y));
  Value denominator =
      arith::AddFOp::create(b, exp, b.splatF32(1.0, lanesOf(x)));
  return arith::DivFOp::create(b, x, denominator);
}

Value prefill::emitSilu(KernelBuilder &b, Value x) {
  return timesSigmoid(b, x, x);
}

// 0.5 (1 + tanh u) is the sigmoid of 2u.
Value prefill::emitGeluTanh(KernelBuilder &b, Value x) {
  int64_t lanes = lanesOf(x);
  constexpr double twoSqrt2OverPi = 1.5957691216057308;
  Value square = arith::MulFOp::create(b, x, x);
  Value inner = math::FmaOp::create(
      b, square, b.splatF32(twoSqrt2OverPi * 0.044715, lanes),
      b.splatF32(twoSqrt2OverPi, lanes));
  return timesSigmoid(b, x, arith::MulFOp::create(b, x, inner));
}

Value prefill::emitReciprocalSqrt(KernelBuilder &b, Value x) {
  return arith::DivFOp::create(b, b.f32(1.0), math::SqrtOp::create(b, x));
}

// Beside 1.5 * 2^23 the unit in the last place is 1. A conversion to integers
// would be undefined for NaN in LLVM.
Value prefill::emitNearestInteger(KernelBuilder &b, Value x, int64_t offset) {
  int64_t lanes = lanesOf(x);
  Value shifted = arith::AddFOp::create(
      b, x, b.splatF32(double((3 << 22) + offset), lanes));
  return vector::BitCastOp::create(b, VectorType::get({lanes}, b.getI32Type()),
                                   shifted);
}

// The upper half of the bits, after adding just below half of its last place,
// or half where that makes it even. A NaN must not round to infinity.
Value prefill::emitBF16Bits(KernelBuilder &b, Value x) {
  int64_t lanes = lanesOf(x);
  auto ints = VectorType::get({lanes}, b.getI32Type());
  Value bits = vector::BitCastOp::create(b, ints, x);
  Value sixteen = b.splatI32(16, lanes);
  Value upper = arith::ShRUIOp::create(b, bits, sixteen);
  Value odd = arith::AndIOp::create(b, upper, b.splatI32(1, lanes));
  Value sum = arith::AddIOp::create(
      b, arith::AddIOp::create(b, bits, b.splatI32(0x7fff, lanes)), odd);
  Value rounded = arith::ShRUIOp::create(b, sum, sixteen);
  Value quiet = arith::OrIOp::create(b, upper, b.splatI32(0x40, lanes));
  Value isNaN = arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, x, x);
  return arith::SelectOp::create(b, isNaN, quiet, rounded);
}

/// What x is an extension of, if that has the type; else null. By bits,
/// rounding is ten instructions, and LLVM does not see that they change nothing
/// then.
static Value roundedBefore(Value x, VectorType type) {
  auto extension = x.getDefiningOp<arith::ExtFOp>();
  return extension && extension.getIn().getType() == type ? extension.getIn()
                                                          : Value();
}

Value prefill::emitTruncate(KernelBuilder &b, const CpuIsa &isa, Value x,
                            Type elementType) {
  if (elementType.isF32())
    return x;
  int64_t lanes = lanesOf(x);
  auto type = VectorType::get({lanes}, elementType);
  if (Value rounded = roundedBefore(x, type))
    return rounded;
  if (!roundsByBits(isa, elementType))
    return arith::TruncFOp::create(b, type, x);
  Value halves = arith::TruncIOp::create(
      b, VectorType::get({lanes}, b.getI16Type()), emitBF16Bits(b, x));
  return vector::BitCastOp::create(b, type, halves);
}

SmallVector<Value> prefill::emitTruncatePair(KernelBuilder &b,
                                             const CpuIsa &isa, Value low,
                                             Value high, Type elementType) {
  if (!isa.hasBf16Dot || !elementType.isBF16())
    return {emitTruncate(b, isa, low, elementType),
            emitTruncate(b, isa, high, elementType)};
  auto type = VectorType::get({2 * lanesOf(low)}, elementType);
  return {callIntrinsic(b, type, "llvm.x86.avx512bf16.cvtne2ps2bf16.512",
                        {high, low})};
}

Value prefill::emitRoundTo(KernelBuilder &b, const CpuIsa &isa, Value x,
                           Type elementType) {
  if (elementType.isF32())
    return x;
  Value rounded = emitTruncate(b, isa, x, elementType);
  return arith::ExtFOp::create(b, x.getType(), rounded);
}
