//===- VNNIPage.cpp - keys and values in pages that kernels multiply with -===//
#include "VNNIPage.h"
#include "VectorMemory.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/VectorMath.h"

using namespace mlir;
using namespace mlir::prefill;

static Type elementOf(Value memref) {
  return cast<MemRefType>(memref.getType()).getElementType();
}

static int64_t lanesOf(Value vector) {
  return cast<VectorType>(vector.getType()).getNumElements();
}

/// Where the features from `feature` on of the token's key begin; the next
/// k_pack ones are kPanelN * k_pack elements further on.
static Value keyPlace(KernelBuilder &b, VNNIToken at, Value feature,
                      int64_t pack) {
  return b.add(b.add(at.page, b.mul(feature, kPanelN)), b.mul(at.token, pack));
}

/// Where the token's k_pack neighbours begin in a panel of values.
static Value valuePlace(KernelBuilder &b, VNNIToken at, Value feature,
                        int64_t pack) {
  // Panels of kPanelN features; `feature` is a multiple of a vector in one.
  Value panel = b.mul(b.divide(feature, kPanelN), kPanelN * kPanelN);
  Value column = b.mul(b.remainder(feature, kPanelN), pack);
  Value step = b.mul(b.divide(at.token, pack), kPanelN * pack);
  return b.add(b.add(at.page, panel), b.add(step, column));
}

void prefill::storeVNNIKey(KernelBuilder &b, const CpuIsa &isa, Value vector,
                           Value keys, VNNIToken at, Value feature,
                           int64_t count) {
  int64_t lanes = lanesOf(vector), pack = kPack(elementOf(keys));
  if (count % pack != 0) {
    SmallVector<bool> inside;
    for (int64_t i = 0; i < lanes; ++i)
      inside.push_back(i < count);
    Value mask = arith::ConstantOp::create(
        b, DenseElementsAttr::get(VectorType::get({lanes}, b.getI1Type()),
                                  ArrayRef<bool>(inside)));
    vector = arith::SelectOp::create(b, mask, vector, b.splatF32(0.0, lanes));
  }
  Value elements = emitTruncate(b, isa, vector, elementOf(keys));
  Value place = keyPlace(b, at, feature, pack);
  for (int64_t i = 0; i < count; i += pack) {
    Value group = vector::ExtractStridedSliceOp::create(
        b, elements, ArrayRef<int64_t>{i}, ArrayRef<int64_t>{pack},
        ArrayRef<int64_t>{1});
    vector::StoreOp::create(b, group, keys,
                            ValueRange{b.add(place, i * kPanelN)});
  }
}

void prefill::storeVNNIValue(KernelBuilder &b, const CpuIsa &isa, Value vector,
                             Value values, VNNIToken at, Value feature) {
  Type element = elementOf(values);
  int64_t lanes = lanesOf(vector), pack = kPack(element);
  Value place = valuePlace(b, at, feature, pack);
  Value elements = emitTruncate(b, isa, vector, element);
  if (pack == 1) {
    vector::StoreOp::create(b, elements, values, ValueRange{place});
    return;
  }
  // Every element twice, and a mask that takes the token's half of each pair.
  SmallVector<int64_t> twice;
  SmallVector<bool> even, odd;
  for (int64_t i = 0; i < 2 * lanes; ++i) {
    twice.push_back(i / 2);
    even.push_back(i % 2 == 0);
    odd.push_back(i % 2 == 1);
  }
  auto maskType = VectorType::get({2 * lanes}, b.getI1Type());
  auto constant = [&](ArrayRef<bool> mask) -> Value {
    return arith::ConstantOp::create(b, DenseElementsAttr::get(maskType, mask));
  };
  Value isOdd = b.compare(arith::CmpIPredicate::eq, b.remainder(at.token, pack),
                          b.index(1));
  Value mask = arith::SelectOp::create(b, isOdd, constant(odd), constant(even));
  storeMaskedHalves(b, vector::ShuffleOp::create(b, elements, elements, twice),
                    values, place, mask);
}

Value prefill::loadVNNIKey(KernelBuilder &b, Value keys, VNNIToken at,
                           int64_t feature, int64_t count, int64_t lanes) {
  Type element = elementOf(keys);
  int64_t pack = kPack(element);
  Value place = keyPlace(b, at, b.index(feature), pack);
  Value result = arith::ConstantOp::create(
      b, b.getZeroAttr(VectorType::get({lanes}, element)));
  for (int64_t i = 0; i < count; i += pack) {
    Value group = vector::LoadOp::create(b, VectorType::get({pack}, element),
                                         keys, b.add(place, i * kPanelN));
    result = vector::InsertStridedSliceOp::create(
        b, group, result, ArrayRef<int64_t>{i}, ArrayRef<int64_t>{1});
  }
  return result;
}

Value prefill::loadVNNIValue(KernelBuilder &b, Value values, VNNIToken at,
                             int64_t feature, int64_t lanes) {
  Type element = elementOf(values);
  int64_t pack = kPack(element);
  Value place = valuePlace(b, at, b.index(feature), pack);
  Value loaded = vector::LoadOp::create(
      b, VectorType::get({lanes * pack}, element), values, place);
  if (pack == 1)
    return loaded;
  SmallVector<int64_t> even, odd;
  for (int64_t i = 0; i < lanes; ++i) {
    even.push_back(2 * i);
    odd.push_back(2 * i + 1);
  }
  Value isOdd = b.compare(arith::CmpIPredicate::eq, b.remainder(at.token, pack),
                          b.index(1));
  return arith::SelectOp::create(
      b, isOdd, vector::ShuffleOp::create(b, loaded, loaded, odd),
      vector::ShuffleOp::create(b, loaded, loaded, even));
}

void prefill::copyVNNIValues(KernelBuilder &b, const CpuIsa &isa, Value values,
                             Value page, int64_t columns, Value numTokens,
                             Value target) {
  Type element = elementOf(values);
  int64_t pack = kPack(element), width = isa.lanes * pack;
  auto type = VectorType::get({width}, element);
  auto words = VectorType::get({isa.lanes}, b.getI32Type());
  auto splat = [&](Value word) -> Value {
    return vector::BroadcastOp::create(b, words, word);
  };
  auto bits = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, b.getI32IntegerAttr(int32_t(value)));
  };
  b.forLoop(b.index(0), b.index(kPanelN / pack), 1, [&](Value step) {
    // Bits of a word that holds k_pack tokens.
    Value tokens =
        b.sub(b.max(numTokens, b.mul(step, pack)), b.mul(step, pack));
    Value whole = b.compare(arith::CmpIPredicate::sge, tokens, b.index(pack));
    Value none = b.compare(arith::CmpIPredicate::eq, tokens, b.index(0));
    Value kept = arith::SelectOp::create(b, whole, bits(-1), bits(0xffff));
    kept = splat(arith::SelectOp::create(b, none, bits(0), kept));
    b.forLoop(
        b.index(0), b.index(columns / kPanelN), 1, [&](Value columnPanel) {
          Value offset = b.add(b.mul(columnPanel, kPanelN * kPanelN),
                               b.mul(step, kPanelN * pack));
          for (int64_t at = 0; at < kPanelN * pack; at += width) {
            Value place = b.add(offset, at);
            Value loaded = vector::BitCastOp::create(
                b, words,
                vector::LoadOp::create(b, type, values, b.add(page, place)));
            loaded = arith::AndIOp::create(b, loaded, kept);
            vector::StoreOp::create(
                b, vector::BitCastOp::create(b, type, loaded), target, place);
          }
        });
  });
}
