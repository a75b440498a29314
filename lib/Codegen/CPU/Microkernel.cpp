//===- Microkernel.cpp - register-blocked inner product loop --------------===//
#include "prefill/Codegen/CPU/Microkernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// The even and odd k of a bf16 pair as f32: a bf16 is the upper half of an
/// f32.
struct SplitPair {
  Value even, odd;
};

SplitPair splitPairs(KernelBuilder &b, Value pairs, int64_t lanes) {
  VectorType f32 = b.vectorF32(lanes);
  Value low = arith::ShLIOp::create(b, pairs, b.splatI32(16, lanes));
  Value high =
      arith::AndIOp::create(b, pairs, b.splatI32(int32_t(0xffff0000), lanes));
  return {vector::BitCastOp::create(b, f32, low),
          vector::BitCastOp::create(b, f32, high)};
}

/// One step of the K loop: loads of both operands and the multiply-adds.
class Step {
public:
  Step(KernelBuilder &b, const CpuIsa &isa, const MicrokernelOperands &ops,
       Value step)
      : b(b), ops(ops), lanes(isa.lanes), mac(isa.macKind(ops.elementType)) {
    aStep = b.mul(step, kPack(ops.elementType));
    bStep = b.mul(step, ops.bStepStride);
  }

  SmallVector<Value> accumulate(ValueRange accumulators) {
    SmallVector<Value> acc(accumulators);
    size_t vectors = ops.bOffsets.size();
    switch (mac) {
    case MacKind::F32: {
      SmallVector<Value> columns = loadColumns(b.getF32Type(), lanes);
      for (auto [r, rowOffset] : llvm::enumerate(ops.aRowOffsets)) {
        Value scalar =
            memref::LoadOp::create(b, ops.a, b.add(rowOffset, aStep));
        Value row = vector::BroadcastOp::create(b, b.vectorF32(lanes), scalar);
        for (size_t v = 0; v < vectors; ++v) {
          Value &sum = acc[r * vectors + v];
          sum = vector::FMAOp::create(b, row, columns[v], sum);
        }
      }
      break;
    }
    case MacKind::Bf16Dot: {
      SmallVector<Value> columns = loadColumns(b.getBF16Type(), 2 * lanes);
      auto pairType = VectorType::get({2 * lanes}, b.getBF16Type());
      for (auto [r, rowOffset] : llvm::enumerate(ops.aRowOffsets)) {
        Value row = vector::BitCastOp::create(b, pairType, loadPair(rowOffset));
        for (size_t v = 0; v < vectors; ++v) {
          Value &sum = acc[r * vectors + v];
          sum = x86vector::DotBF16Op::create(b, sum, row, columns[v]);
        }
      }
      break;
    }
    case MacKind::Bf16Split: {
      SmallVector<SplitPair> columns;
      auto intType = VectorType::get({lanes}, b.getI32Type());
      for (Value pairs : loadColumns(b.getBF16Type(), 2 * lanes))
        columns.push_back(
            splitPairs(b, vector::BitCastOp::create(b, intType, pairs), lanes));
      for (auto [r, rowOffset] : llvm::enumerate(ops.aRowOffsets)) {
        SplitPair row = splitPairs(b, loadPair(rowOffset), lanes);
        for (size_t v = 0; v < vectors; ++v) {
          Value &sum = acc[r * vectors + v];
          sum = vector::FMAOp::create(b, row.even, columns[v].even, sum);
          sum = vector::FMAOp::create(b, row.odd, columns[v].odd, sum);
        }
      }
      break;
    }
    }
    return acc;
  }

private:
  // Flat loads: a two-dimensional transfer of pairs would go through the stack.
  SmallVector<Value> loadColumns(Type elementType, int64_t elements) {
    auto type = VectorType::get({elements}, elementType);
    return llvm::map_to_vector(ops.bOffsets, [&](Value offset) -> Value {
      return vector::LoadOp::create(b, type, ops.b, b.add(offset, bStep));
    });
  }

  /// The pair of a row in every lane, as vector<lanes x i32>.
  Value loadPair(Value rowOffset) {
    Value pair =
        vector::LoadOp::create(b, VectorType::get({2}, b.getBF16Type()), ops.a,
                               ValueRange{b.add(rowOffset, aStep)});
    Value word = vector::BitCastOp::create(
        b, VectorType::get({1}, b.getI32Type()), pair);
    Value scalar = vector::ExtractOp::create(b, word, ArrayRef<int64_t>{0});
    return vector::BroadcastOp::create(
        b, VectorType::get({lanes}, b.getI32Type()), scalar);
  }

  KernelBuilder &b;
  const MicrokernelOperands &ops;
  int64_t lanes;
  MacKind mac;
  Value aStep, bStep;
};

} // namespace

SmallVector<Value> prefill::panelVectorOffsets(KernelBuilder &b,
                                               const CpuIsa &isa,
                                               Type elementType, Value panel,
                                               int64_t column, int64_t count) {
  SmallVector<Value> offsets;
  for (int64_t v = 0; v < count; ++v)
    offsets.push_back(
        b.add(panel, (column + v * isa.lanes) * kPack(elementType)));
  return offsets;
}

SmallVector<Value> prefill::emitMicrokernel(KernelBuilder &b, const CpuIsa &isa,
                                            const MicrokernelOperands &operands,
                                            ValueRange init) {
  SmallVector<Value> start(init);
  if (start.empty())
    start.assign(operands.aRowOffsets.size() * operands.bOffsets.size(),
                 b.splatF32(0.0, isa.lanes));
  return b.forLoop(b.index(0), operands.steps, 1, start,
                   [&](Value step, ValueRange acc) {
                     return Step(b, isa, operands, step).accumulate(acc);
                   });
}
