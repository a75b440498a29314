//===- BF16Pairs.cpp - packed bf16 pairs as f32 ---------------------------===//
#include "BF16Pairs.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/TileTable.h"

using namespace mlir;
using namespace mlir::prefill;

SplitPair prefill::splitPairs(KernelBuilder &b, Value pairs, int64_t lanes) {
  VectorType f32 = b.vectorF32(lanes);
  pairs = vector::BitCastOp::create(b, VectorType::get({lanes}, b.getI32Type()),
                                    pairs);
  Value low = arith::ShLIOp::create(b, pairs, b.splatI32(16, lanes));
  Value high =
      arith::AndIOp::create(b, pairs, b.splatI32(int32_t(0xffff0000), lanes));
  return {vector::BitCastOp::create(b, f32, low),
          vector::BitCastOp::create(b, f32, high)};
}

void prefill::widenPanel(KernelBuilder &b, const CpuIsa &isa, Value source,
                         Value from, Value target, Value to, Value steps,
                         Value next) {
  int64_t lanes = isa.lanes;
  auto pairType = VectorType::get({2 * lanes}, b.getBF16Type());
  b.forLoop(b.index(0), steps, 1, [&](Value step) {
    Value offset = b.mul(step, 2 * kPanelN);
    constexpr int64_t line = kCacheLineBytes / 2;
    for (int64_t at = 0; next && at < 2 * kPanelN; at += line)
      memref::PrefetchOp::create(
          b, source, ValueRange{b.add(b.add(next, offset), at)},
          /*isWrite=*/false, /*localityHint=*/2, /*isDataCache=*/true);
    for (int64_t column = 0; column < kPanelN; column += lanes) {
      Value pairs = vector::LoadOp::create(
          b, pairType, source,
          ValueRange{b.add(b.add(from, offset), 2 * column)});
      SplitPair k = splitPairs(b, pairs, lanes);
      Value place = b.add(b.add(to, offset), column);
      vector::StoreOp::create(b, k.even, target, ValueRange{place});
      vector::StoreOp::create(b, k.odd, target,
                              ValueRange{b.add(place, kPanelN)});
    }
  });
}
