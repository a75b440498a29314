//===- AttentionScheduler.cpp - which rows a workgroup computes -----------===//
#include "Attention.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// The arithmetic of AttentionBlockRange.h on i32.
struct ThreadArithmetic {
  using Value = ::mlir::Value;
  CudaBuilder &b;

  Value constant(int64_t value) const { return b.i32(value); }
  Value add(Value lhs, Value rhs) const { return b.add(lhs, rhs); }
  Value sub(Value lhs, Value rhs) const { return b.sub(lhs, rhs); }
  Value mul(Value lhs, Value rhs) const { return b.mul(lhs, rhs); }
  Value min(Value lhs, Value rhs) const { return b.min(lhs, rhs); }
  Value max(Value lhs, Value rhs) const { return b.max(lhs, rhs); }
  Value divFloor(Value lhs, int64_t rhs) const { return b.divide(lhs, rhs); }
  Value divCeil(Value lhs, int64_t rhs) const { return b.ceilDivide(lhs, rhs); }
};

} // namespace

KeyRange<Value> prefill::emitVisibleKeys(CudaBuilder &b,
                                         const AttentionKernelShape &shape,
                                         const AttentionRows &rows, Value row) {
  return visibleKeys(ThreadArithmetic{b}, shape.mask,
                     SequenceLengths<Value>{rows.seqlenQ, rows.seqlenKv}, row);
}

KeyRange<Value> prefill::emitSplitKeys(CudaBuilder &b,
                                       const AttentionKernelShape &shape,
                                       const AttentionRows &rows) {
  return splitKeys(ThreadArithmetic{b}, shape.numSplits, rows.seqlenKv,
                   rows.split);
}

// Sequences have ceildiv(seqlen_q, block_q) tiles each. Every thread walks over
// the sequences: the loads of a warp are one request and hit the cache.
AttentionRows prefill::emitAttentionRows(CudaBuilder &b, const CudaBatch &batch,
                                         Value workgroup,
                                         const AttentionKernelShape &shape) {
  auto load = [&](Value array, Value index, StringRef site) {
    return b.load(b.getI32Type(),
                  b.elementPointer(array, index, b.getI32Type()), site);
  };
  Value zero = b.i32(0), one = b.i32(1);
  Value tile = b.divide(workgroup, shape.heads.numKvHeads);
  // Carried: where the sequence starts, tiles to go (negative once found),
  // sequence, its tiles behind ours, seqlen_q, row of the batch.
  Value start = load(batch.cuSeqlens, zero, "attention.load_cu_seqlens");
  auto loop =
      scf::ForOp::create(b, zero, b.toI32(batch.numSeqs), one,
                         ValueRange{start, tile, zero, zero, zero, zero});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(loop.getBody());
    Value sequence = loop.getInductionVar();
    ValueRange carried = loop.getRegionIterArgs();
    Value end = load(batch.cuSeqlens, b.add(sequence, one),
                     "attention.load_cu_seqlens");
    Value seqlenQ = b.sub(end, carried[0]);
    Value tiles = b.ceilDivide(seqlenQ, shape.blockQ);
    Value here = b.both(b.compare(arith::CmpIPredicate::sge, carried[1], zero),
                        b.less(carried[1], tiles));
    Value behind = b.sub(b.sub(tiles, one), carried[1]);
    SmallVector<Value> next{end,
                            b.sub(carried[1], tiles),
                            b.select(here, sequence, carried[2]),
                            b.select(here, behind, carried[3]),
                            b.select(here, seqlenQ, carried[4]),
                            b.select(here, carried[0], carried[5])};
    // Found: no later sequence may be ours as well.
    next[1] = b.select(here, b.i32(-1), next[1]);
    scf::YieldOp::create(b, next);
  }
  AttentionRows rows;
  rows.sequence = loop.getResult(2);
  rows.kvHead = b.remainder(workgroup, shape.heads.numKvHeads);
  rows.seqlenQ = loop.getResult(4);
  rows.rowBegin = b.mul(loop.getResult(3), shape.blockQ);
  rows.batchRow = b.add(loop.getResult(5), rows.rowBegin);
  rows.count = b.min(b.sub(rows.seqlenQ, rows.rowBegin), shape.blockQ);
  return rows;
}

/// The fields that are spread over lanes, in order.
static SmallVector<Value *> fields(AttentionRows &rows, bool hasSplit) {
  SmallVector<Value *> all{&rows.sequence, &rows.rowBegin, &rows.kvHead,
                           &rows.count,    &rows.seqlenQ,  &rows.seqlenKv,
                           &rows.batchRow, &rows.endKey};
  if (hasSplit)
    all.push_back(&rows.split);
  return all;
}

Value AttentionRows::spread(CudaBuilder &b, Value lane) const {
  AttentionRows copy = *this;
  Value word = b.i32(0);
  for (auto [i, field] : llvm::enumerate(fields(copy, bool(split))))
    word = b.select(b.equal(lane, int64_t(i)), *field, word);
  return word;
}

AttentionRows AttentionRows::gather(CudaBuilder &b, Value word, bool hasSplit) {
  AttentionRows rows;
  for (auto [i, field] : llvm::enumerate(fields(rows, hasSplit)))
    *field = b.shuffleIndex(word, b.i32(int64_t(i)), "attention.rows");
  return rows;
}

Value prefill::emitUnknownZero(CudaBuilder &b, const CudaBatch &batch) {
  // No batch has 2^62 sequences.
  return b.toI32(b.shiftRight(b.toI64(batch.numSeqs), 62));
}
