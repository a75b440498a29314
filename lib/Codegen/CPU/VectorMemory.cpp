//===- VectorMemory.cpp - vectors of columns from and to memory -----------===//
#include "VectorMemory.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/VectorMath.h"

using namespace mlir;
using namespace mlir::prefill;

/// Address of an element of a memref with static strides.
static Value elementAddress(KernelBuilder &b, Value memref,
                            ValueRange indices) {
  auto type = cast<MemRefType>(memref.getType());
  auto [strides, offset] = type.getStridesAndOffset();
  assert(offset == 0 && "kernels view whole buffers");
  Value element = b.index(0);
  for (auto [index, stride] : llvm::zip_equal(indices, strides))
    element = b.add(element, b.mul(index, stride));
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, memref);
  Value address =
      b.add(base, b.mul(element, type.getElementTypeBitWidth() / 8));
  Value word = arith::IndexCastOp::create(b, b.getI64Type(), address);
  return LLVM::IntToPtrOp::create(b, LLVM::LLVMPointerType::get(b.getContext()),
                                  word);
}

// Masked accesses of 16-bit floats go through i16: LLVM takes vectors apart
// where the ISA has no masked move of that width, and a lone bf16 is an f32 to
// it that a library call rounds.
static bool needsIntegerAccess(Type element) {
  return element.getIntOrFloatBitWidth() == 16;
}

Value prefill::loadColumns(KernelBuilder &b, Value memref, ValueRange indices,
                           int64_t lanes, Value mask) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  auto type = VectorType::get({lanes}, element);
  Value loaded;
  if (mask && needsIntegerAccess(element)) {
    auto ints = VectorType::get({lanes}, b.getI16Type());
    Value zero = arith::ConstantOp::create(b, b.getZeroAttr(ints));
    Value bits = LLVM::MaskedLoadOp::create(
        b, ints, elementAddress(b, memref, indices), mask, zero,
        /*alignment=*/2);
    // LLVM may make a lone bf16 of a mask of few lanes, hence no extf.
    if (element.isBF16()) {
      auto words = VectorType::get({lanes}, b.getI32Type());
      Value shifted = arith::ShLIOp::create(
          b, arith::ExtUIOp::create(b, words, bits), b.splatI32(16, lanes));
      return vector::BitCastOp::create(b, b.vectorF32(lanes), shifted);
    }
    loaded = vector::BitCastOp::create(b, type, bits);
  } else if (mask) {
    Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
    loaded = vector::MaskedLoadOp::create(b, type, memref, indices, mask, zero);
  } else {
    loaded = vector::LoadOp::create(b, type, memref, indices);
  }
  return element.isF32() ? loaded
                         : arith::ExtFOp::create(b, b.vectorF32(lanes), loaded);
}

void prefill::storeMaskedHalves(KernelBuilder &b, Value vector, Value memref,
                                ValueRange indices, Value mask) {
  auto type = cast<VectorType>(vector.getType());
  Value bits = vector::BitCastOp::create(b, type.clone(b.getI16Type()), vector);
  LLVM::MaskedStoreOp::create(b, bits, elementAddress(b, memref, indices), mask,
                              /*alignment=*/2);
}

/// The lower halves (vpmovdw) or bytes (vpmovdb) of 16 words. LLVM 22 would
/// make a store of all four bytes of a masked store of a truncated vector when
/// the mask takes one lane (LLVM issue 179489), hence the instruction by name.
static void storeMaskedBits(KernelBuilder &b, Value words, Value memref,
                            ValueRange indices, Value mask) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  auto bits = VectorType::get({1}, b.getI16Type());
  Value lanes = vector::ExtractOp::create(
      b, vector::BitCastOp::create(b, bits, mask), ArrayRef<int64_t>{0});
  LLVM::CallIntrinsicOp::create(
      b,
      b.getStringAttr(element.getIntOrFloatBitWidth() == 8
                          ? "llvm.x86.avx512.mask.pmov.db.mem.512"
                          : "llvm.x86.avx512.mask.pmov.dw.mem.512"),
      ValueRange{elementAddress(b, memref, indices), words, lanes});
}

void prefill::storeColumns(KernelBuilder &b, const CpuIsa &isa, Value vector,
                           Value memref, ValueRange indices, Value mask) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  if (mask && roundsByBits(isa, element) && isa.lanes == 16) {
    storeMaskedBits(b, emitBF16Bits(b, vector), memref, indices, mask);
    return;
  }
  vector = emitTruncate(b, isa, vector, element);
  if (mask && needsIntegerAccess(element)) {
    storeMaskedHalves(b, vector, memref, indices, mask);
  } else if (mask) {
    vector::MaskedStoreOp::create(b, memref, indices, mask, vector);
  } else {
    vector::StoreOp::create(b, vector, memref, indices);
  }
}

void prefill::storeInt8Columns(KernelBuilder &b, const CpuIsa &isa, Value words,
                               Value memref, ValueRange indices, Value mask) {
  if (mask && isa.lanes == 16)
    return storeMaskedBits(b, words, memref, indices, mask);
  Value bytes = arith::TruncIOp::create(
      b, VectorType::get({isa.lanes}, b.getI8Type()), words);
  if (mask)
    vector::MaskedStoreOp::create(b, memref, indices, mask, bytes);
  else
    vector::StoreOp::create(b, bytes, memref, indices);
}

Value prefill::sumLanes(KernelBuilder &b, Value vector) {
  // Halve until one lane is left: LLVM's own reduction without fast-math adds
  // lane after lane.
  int64_t lanes = cast<VectorType>(vector.getType()).getNumElements();
  for (; lanes > 1; lanes /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t i = 0; i < lanes / 2; ++i) {
      low.push_back(i);
      high.push_back(lanes / 2 + i);
    }
    Value lower = vector::ShuffleOp::create(b, vector, vector, low);
    Value upper = vector::ShuffleOp::create(b, vector, vector, high);
    vector = arith::AddFOp::create(b, lower, upper);
  }
  return vector::ExtractOp::create(b, vector, ArrayRef<int64_t>{0});
}
