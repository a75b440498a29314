//===- VectorMemory.cpp - vectors of columns from and to memory -----------===//
#include "VectorMemory.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/VectorMath.h"

using namespace mlir;
using namespace mlir::prefill;

Value prefill::loadColumns(KernelBuilder &b, Value memref, ValueRange indices,
                           int64_t lanes, Value mask) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  auto type = VectorType::get({lanes}, element);
  Value loaded;
  if (mask) {
    Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
    loaded = vector::MaskedLoadOp::create(b, type, memref, indices, mask, zero);
  } else {
    loaded = vector::LoadOp::create(b, type, memref, indices);
  }
  return element.isF32() ? loaded
                         : arith::ExtFOp::create(b, b.vectorF32(lanes), loaded);
}

void prefill::storeColumns(KernelBuilder &b, const CpuIsa &isa, Value vector,
                           Value memref, ValueRange indices, Value mask) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  vector = emitTruncate(b, isa, vector, element);
  if (mask)
    vector::MaskedStoreOp::create(b, memref, indices, mask, vector);
  else
    vector::StoreOp::create(b, vector, memref, indices);
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
