//===- AmxTiles.cpp - AMX tiles ----------------------------------------===//
//
// The intrinsics by name, not MLIR's amx dialect: its tile type has no
// conversion where a loop carries tiles.
//
//===----------------------------------------------------------------------===//
#include "AmxTiles.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::prefill;

static constexpr int64_t kAmxRowBytes = 64;

static int64_t elementBytes(Value memref) {
  return cast<MemRefType>(memref.getType()).getElementTypeBitWidth() / 8;
}

Value AmxTiles::pointer(Value memref, Value offset) {
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, memref);
  auto type = LLVM::LLVMPointerType::get(b.getContext());
  Value integer = arith::IndexCastOp::create(b, b.getI64Type(), address);
  Value base = LLVM::IntToPtrOp::create(b, type, integer);
  Value element = arith::IndexCastOp::create(b, b.getI64Type(), offset);
  SmallVector<LLVM::GEPArg> indices{element};
  return LLVM::GEPOp::create(
      b, type, cast<MemRefType>(memref.getType()).getElementType(), base,
      indices);
}

Value AmxTiles::byteStride(Value memref, Value rowStride) {
  return arith::IndexCastOp::create(b, b.getI64Type(),
                                    b.mul(rowStride, elementBytes(memref)));
}

SmallVector<Value> AmxTiles::shape() {
  auto i16 = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, b.getI16IntegerAttr(int16_t(value)));
  };
  return {i16(kAmxRows), i16(kAmxRowBytes)};
}

Value AmxTiles::call(StringRef name, ValueRange operands) {
  return LLVM::CallIntrinsicOp::create(
             b, LLVM::LLVMX86AMXType::get(b.getContext()),
             b.getStringAttr(name), operands)
      .getResult(0);
}

Value AmxTiles::zero() { return call("llvm.x86.tilezero.internal", shape()); }

Value AmxTiles::load(StringRef name, Value memref, Value offset,
                     Value rowStride) {
  SmallVector<Value> operands = shape();
  operands.append({pointer(memref, offset), byteStride(memref, rowStride)});
  return call(name, operands);
}

Value AmxTiles::load(Value memref, Value offset, Value rowStride) {
  return load("llvm.x86.tileloadd64.internal", memref, offset, rowStride);
}

Value AmxTiles::loadStreamed(Value memref, Value offset, Value rowStride) {
  return load("llvm.x86.tileloaddt164.internal", memref, offset, rowStride);
}

void AmxTiles::store(Value tile, Value memref, Value offset, Value rowStride) {
  SmallVector<Value> operands = shape();
  operands.append(
      {pointer(memref, offset), byteStride(memref, rowStride), tile});
  LLVM::CallIntrinsicOp::create(
      b, b.getStringAttr("llvm.x86.tilestored64.internal"), operands);
}

Value AmxTiles::multiplyAdd(Value sums, Value left, Value right) {
  SmallVector<Value> operands = shape(); // rows and bytes of a row of the sums
  operands.append({operands.back(), sums, left, right});
  return call("llvm.x86.tdpbf16ps.internal", operands);
}
