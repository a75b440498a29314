//===- Int8Rows.cpp - rows of 8-bit integers for a microkernel ------------===//
#include "Int8Rows.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::prefill;

/// Of rows for vpdpbusd, as the eight bits of a constant, which is signed.
static constexpr int64_t kBias = 128, kBiasBits = -128;

static int64_t lanesOf(Value vector) {
  return cast<VectorType>(vector.getType()).getNumElements();
}

Type prefill::stagedInt8Type(MLIRContext *context, const CpuIsa &isa) {
  return IntegerType::get(context, isa.hasInt8Dot ? 8 : 16);
}

int64_t prefill::int8RowBias(const CpuIsa &isa) {
  return isa.hasInt8Dot ? kBias : 0;
}

/// `value` in every element of a vector of integers.
static Value splat(KernelBuilder &b, VectorType type, int64_t value) {
  return arith::ConstantOp::create(
      b, DenseElementsAttr::get(
             type, b.getIntegerAttr(type.getElementType(), value)));
}

void prefill::stageInt8Row(KernelBuilder &b, const CpuIsa &isa, Value source,
                           Value from, Value target, Value to, Value length) {
  // A vector of the target's.
  int64_t width = isa.lanes * (isa.hasInt8Dot ? 4 : 2);
  auto type = VectorType::get({width}, b.getI8Type());
  Value whole = b.mul(b.divide(length, width), width);
  b.forLoop(b.index(0), whole, width, [&](Value k) {
    Value ints =
        vector::LoadOp::create(b, type, source, ValueRange{b.add(from, k)});
    if (!isa.hasInt8Dot) {
      ints = arith::ExtSIOp::create(b, type.clone(b.getI16Type()), ints);
      SmallVector<int64_t> order;
      for (int64_t group = 0; group < width; group += 4)
        order.append({group, group + 2, group + 1, group + 3});
      ints = vector::ShuffleOp::create(b, ints, ints, order);
    }
    vector::StoreOp::create(b, ints, target, ValueRange{b.add(to, k)});
  });
  b.forLoop(whole, length, 1, [&](Value k) {
    Value value = memref::LoadOp::create(b, source, ValueRange{b.add(from, k)});
    if (isa.hasInt8Dot) {
      memref::StoreOp::create(b, value, target, ValueRange{b.add(to, k)});
      return;
    }
    // k of a group of four: 0, 1, 2, 3 go to places 0, 2, 1, 3.
    Value inGroup = b.remainder(k, 4);
    Value place =
        b.add(b.sub(k, inGroup),
              b.add(b.mul(b.remainder(inGroup, 2), 2), b.divide(inGroup, 2)));
    memref::StoreOp::create(b, arith::ExtSIOp::create(b, b.getI16Type(), value),
                            target, ValueRange{b.add(to, place)});
  });
}

void prefill::stageInt8Zeros(KernelBuilder &b, Value target, Value to,
                             int64_t length) {
  auto type = VectorType::get({kPanelN}, b.getI8Type());
  Value zeros = splat(b, type, kBiasBits);
  b.forLoop(b.index(0), b.index(llvm::alignTo(length, kPanelN)), kPanelN,
            [&](Value k) {
              vector::StoreOp::create(b, zeros, target,
                                      ValueRange{b.add(to, k)});
            });
}

void prefill::emitInt8Bias(KernelBuilder &b, const CpuIsa &isa, Value weight,
                           Value start, Value steps, int64_t chains, Value bias,
                           Value column, Value isFirst) {
  auto type = VectorType::get({isa.lanes}, b.getI32Type());
  auto bytes = VectorType::get({4 * isa.lanes}, b.getI8Type());
  int64_t vectors = kPanelN / isa.lanes;
  Value row = vector::BitCastOp::create(b, type, splat(b, bytes, kBiasBits));
  Value none = splat(b, type, 0);
  SmallVector<Value> sums = b.forLoop(
      b.index(0), steps, chains, SmallVector<Value>(chains * vectors, none),
      [&](Value step, ValueRange carried) {
        SmallVector<Value> next(carried);
        Value from = b.add(start, b.mul(step, 4 * kPanelN));
        for (auto [i, sum] : llvm::enumerate(next)) {
          Value ints = vector::LoadOp::create(
              b, bytes, weight,
              ValueRange{b.add(from, int64_t(i) * 4 * isa.lanes)});
          sum = emitInt8Dot(b, sum, row,
                            vector::BitCastOp::create(b, type, ints));
        }
        return next;
      });
  for (int64_t v = 0; v < vectors; ++v) {
    Value place = b.add(column, v * isa.lanes);
    Value before = vector::LoadOp::create(b, type, bias, ValueRange{place});
    Value sum = arith::SelectOp::create(b, isFirst, none, before);
    for (int64_t chain = 0; chain < chains; ++chain)
      sum = arith::AddIOp::create(b, sum, sums[chain * vectors + v]);
    vector::StoreOp::create(b, sum, bias, ValueRange{place});
  }
}

static Value callIntrinsic(KernelBuilder &b, Type type, StringRef name,
                           ValueRange operands) {
  return LLVM::CallIntrinsicOp::create(b, type, b.getStringAttr(name), operands)
      .getResults();
}

Value prefill::emitInt8Dot(KernelBuilder &b, Value acc, Value row,
                           Value column) {
  int64_t lanes = lanesOf(acc);
  auto bytes = VectorType::get({4 * lanes}, b.getI8Type());
  return callIntrinsic(b, acc.getType(),
                       lanes == 16 ? "llvm.x86.avx512.vpdpbusd.512"
                                   : "llvm.x86.avx512.vpdpbusd.256",
                       {acc, vector::BitCastOp::create(b, bytes, row),
                        vector::BitCastOp::create(b, bytes, column)});
}

Value prefill::emitInt16Dot(KernelBuilder &b, Value acc, Value row,
                            Value column) {
  int64_t lanes = lanesOf(acc);
  auto halves = VectorType::get({2 * lanes}, b.getI16Type());
  Value products = callIntrinsic(
      b, acc.getType(),
      lanes == 16 ? "llvm.x86.avx512.pmaddw.d.512" : "llvm.x86.avx2.pmadd.wd",
      {vector::BitCastOp::create(b, halves, row),
       vector::BitCastOp::create(b, halves, column)});
  return arith::AddIOp::create(b, acc, products);
}
