//===- AttentionVectors.cpp - vector idioms of the attention kernel -------===//
#include "Attention.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::prefill;

static int64_t lanesOf(Value x) {
  return cast<VectorType>(x.getType()).getNumElements();
}

void prefill::forEachPiece(int64_t count, int64_t width,
                           llvm::function_ref<void(int64_t, int64_t)> emit) {
  for (int64_t offset = 0; offset < count;) {
    int64_t size =
        std::min<int64_t>(width, llvm::bit_floor<uint64_t>(count - offset));
    emit(offset, size);
    offset += size;
  }
}

Value prefill::loadPadded(KernelBuilder &b, Value memref, Value offset,
                          int64_t count, int64_t width) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  auto load = [&](int64_t at, int64_t size) -> Value {
    return vector::LoadOp::create(b, VectorType::get({size}, element), memref,
                                  ValueRange{b.add(offset, at)});
  };
  if (count == width)
    return load(0, width);
  Value result = arith::ConstantOp::create(
      b, b.getZeroAttr(VectorType::get({width}, element)));
  forEachPiece(count, width, [&](int64_t at, int64_t size) {
    result = vector::InsertStridedSliceOp::create(
        b, load(at, size), result, ArrayRef<int64_t>{at}, ArrayRef<int64_t>{1});
  });
  return result;
}

Value prefill::maximum(KernelBuilder &b, Value lhs, Value rhs) {
  // The form that is one instruction on x86; arith.maximumf and maxnumf add
  // code for NaN.
  Value greater = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, lhs, rhs);
  return arith::SelectOp::create(b, greater, lhs, rhs);
}

Value prefill::reduceLanes(KernelBuilder &b, Value vector,
                           llvm::function_ref<Value(Value, Value)> combine) {
  for (int64_t lanes = lanesOf(vector); lanes > 1; lanes /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t i = 0; i < lanes / 2; ++i) {
      low.push_back(i);
      high.push_back(lanes / 2 + i);
    }
    vector = combine(vector::ShuffleOp::create(b, vector, vector, low),
                     vector::ShuffleOp::create(b, vector, vector, high));
  }
  return vector::ExtractOp::create(b, vector, ArrayRef<int64_t>{0});
}

// 2^x = 2^n 2^r with n = round(x), |r| <= 1/2. Coefficients of Cephes' exp2f
// (Moshier), whose constant term is exactly 1.
Value prefill::emitExp2(KernelBuilder &b, Value x) {
  int64_t lanes = lanesOf(x);
  auto splat = [&](double value) { return b.splatF32(value, lanes); };
  Value smallest = splat(-126.0);
  Value normal =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OGE, x, smallest);
  Value clamped = maximum(b, x, smallest);
  Value n = math::RoundEvenOp::create(b, clamped);
  Value r = arith::SubFOp::create(b, clamped, n);
  Value p = splat(1.535336188319500e-4);
  for (double coefficient :
       {1.339887440266574e-3, 9.618437357674640e-3, 5.550332471162809e-2,
        2.402264791363012e-1, 6.931472028550421e-1, 1.0})
    p = math::FmaOp::create(b, p, r, splat(coefficient));
  // 2^n by adding n to the exponent: x >= -126 keeps it that of a normal
  // number.
  auto intType = VectorType::get({lanes}, b.getI32Type());
  Value exponent = arith::ShLIOp::create(
      b, arith::FPToSIOp::create(b, intType, n), b.splatI32(23, lanes));
  Value bits = arith::AddIOp::create(
      b, vector::BitCastOp::create(b, intType, p), exponent);
  Value power = vector::BitCastOp::create(b, b.vectorF32(lanes), bits);
  return arith::SelectOp::create(b, normal, power, splat(0.0));
}

SmallVector<Value> prefill::transposeLanes(KernelBuilder &b, ValueRange rows) {
  // Swaps the off-diagonal halves of 2 x 2 blocks of 1, 2, 4, … lanes.
  SmallVector<Value> v(rows);
  int64_t n = v.size();
  for (int64_t half = 1; half < n; half *= 2) {
    SmallVector<int64_t> first(n), second(n);
    for (int64_t e = 0; e < n; ++e) {
      first[e] = e & half ? n + e - half : e;
      second[e] = e & half ? n + e : e + half;
    }
    for (int64_t i = 0; i < n; ++i) {
      if (i & half)
        continue;
      Value upper = v[i], lower = v[i + half];
      v[i] = vector::ShuffleOp::create(b, upper, lower, first);
      v[i + half] = vector::ShuffleOp::create(b, upper, lower, second);
    }
  }
  return v;
}
