//===- AttentionVectors.cpp - vector idioms of the attention kernel -------===//
#include "Attention.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::prefill;

static int64_t lanesOf(Value x) {
  return cast<VectorType>(x.getType()).getNumElements();
}

Value prefill::loadVector(KernelBuilder &b, Value memref, Value offset,
                          int64_t lanes) {
  return vector::LoadOp::create(b, b.vectorF32(lanes), memref,
                                ValueRange{offset});
}

void prefill::storeVector(KernelBuilder &b, Value vector, Value memref,
                          Value offset) {
  vector::StoreOp::create(b, vector, memref, ValueRange{offset});
}

Value prefill::broadcast(KernelBuilder &b, Value scalar, int64_t lanes) {
  return vector::BroadcastOp::create(
      b, VectorType::get({lanes}, scalar.getType()), scalar);
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

Value prefill::reduceRows(KernelBuilder &b, ValueRange rows,
                          llvm::function_ref<Value(Value, Value)> combine) {
  int64_t lanes = lanesOf(rows.front()), count = rows.size();
  SmallVector<Value> v(rows);
  // A power of two of vectors: the surplus ones are dropped at the end.
  while (!llvm::isPowerOf2_64(v.size()))
    v.push_back(v.back());
  // A vector holds `segments` rows, `width` partial results of each.
  int64_t segments = 1, width = lanes;
  auto halves = [&](Value lhs, Value rhs) {
    SmallVector<int64_t> lower, upper;
    for (int64_t source = 0; source < (rhs ? 2 : 1); ++source)
      for (int64_t s = 0; s < segments; ++s)
        for (int64_t i = 0; i < width / 2; ++i) {
          lower.push_back(source * segments * width + s * width + i);
          upper.push_back(lower.back() + width / 2);
        }
    Value second = rhs ? rhs : lhs;
    return combine(vector::ShuffleOp::create(b, lhs, second, lower),
                   vector::ShuffleOp::create(b, lhs, second, upper));
  };
  for (; v.size() > 1; segments *= 2, width /= 2) {
    SmallVector<Value> next;
    for (size_t i = 0; i < v.size(); i += 2)
      next.push_back(halves(v[i], v[i + 1]));
    v = next;
  }
  for (; width > 1; width /= 2)
    v[0] = halves(v[0], {});
  if (segments == count)
    return v[0];
  return vector::ExtractStridedSliceOp::create(b, v[0], ArrayRef<int64_t>{0},
                                               ArrayRef<int64_t>{count},
                                               ArrayRef<int64_t>{1});
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
