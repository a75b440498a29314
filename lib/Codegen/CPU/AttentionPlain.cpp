//===- AttentionPlain.cpp - attention with the score matrix in memory -----===//
//
// The baseline: for every row and head three passes over all keys of the
// sequence, scores to memory, softmax in memory, values. It skips no block and
// shares no key among rows. Plain vector loops.
//
//===----------------------------------------------------------------------===//
#include "Attention.h"
#include "VNNIPage.h"
#include "VectorMemory.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Analysis/IndexArithmetic.h"
#include "prefill/Codegen/CPU/VectorMath.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

/// One query row of one head.
class PlainRowEmitter {
public:
  PlainRowEmitter(AttentionContext &context, const AttentionRows &rows,
                  const CacheView &cache, Value scores, Value scoreRow,
                  KeyRange<Value> visible)
      : b(context.b), context(context), shape(context.shape), rows(rows),
        cache(cache), scores(scores), scoreRow(scoreRow), visible(visible),
        lanes(context.isa.lanes) {}

  void emit(Value query, Value queryOffset, Value out, Value outOffset) {
    emitScores(query, queryOffset);
    Value sum = emitSoftmax();
    emitValues(sum, out, outOffset);
  }

private:
  Value keyOffset(Value token) {
    return cache.headOffset(
        b, cache.tokenOffset(b, context.abi.batch(), rows.sequence, token),
        rows.kvHead);
  }

  VNNIToken pagePlace(Value token) {
    return {cache.headOffset(
                b,
                cache.blockOffset(b, context.abi.batch(), rows.sequence, token),
                rows.kvHead),
            b.remainder(token, kPanelN)};
  }

  /// A token's key or value in vectors of features.
  SmallVector<Value> loadChunks(Value token, bool isKey) {
    int64_t headDim = isKey ? shape.headDimQk : shape.headDimV;
    Value memref = isKey ? cache.key : cache.value;
    VNNIToken place;
    Value offset;
    if (shape.isPacked)
      place = pagePlace(token);
    else
      offset = keyOffset(token);
    SmallVector<Value> chunks;
    for (int64_t at = 0; at < headDim; at += lanes) {
      int64_t count = std::min(lanes, headDim - at);
      Value chunk;
      if (!shape.isPacked)
        chunk = loadPadded(b, memref, b.add(offset, at), count, lanes);
      else if (isKey)
        chunk = loadVNNIKey(b, memref, place, at, count, lanes);
      else
        chunk = loadVNNIValue(b, memref, place, at, lanes);
      chunks.push_back(extend(chunk));
    }
    return chunks;
  }

  Value extend(Value vector) {
    if (shape.storedType.isF32())
      return vector;
    int64_t size = cast<VectorType>(vector.getType()).getNumElements();
    return arith::ExtFOp::create(b, b.vectorF32(size), vector);
  }

  Value scoreAt(Value key) { return b.add(scoreRow, key); }

  void emitScores(Value query, Value queryOffset) {
    int64_t chunks = llvm::divideCeil(shape.headDimQk, lanes);
    SmallVector<Value> queries;
    for (int64_t c = 0; c < chunks; ++c) {
      int64_t count = std::min(lanes, shape.headDimQk - c * lanes);
      queries.push_back(extend(
          loadPadded(b, query, b.add(queryOffset, c * lanes), count, lanes)));
    }
    b.forLoop(b.index(0), rows.seqlenKv, 1, [&](Value key) {
      SmallVector<Value> keys = loadChunks(key, /*isKey=*/true);
      Value sum = b.splatF32(0.0, lanes);
      for (int64_t c = 0; c < chunks; ++c)
        sum = math::FmaOp::create(b, queries[c], keys[c], sum);
      Value score = sumLanes(b, sum);
      score = arith::MulFOp::create(b, score, b.f32(shape.scoreScale));
      Value seen = arith::AndIOp::create(
          b, b.compare(arith::CmpIPredicate::sge, key, visible.begin),
          b.compare(arith::CmpIPredicate::slt, key, visible.end));
      score = arith::SelectOp::create(b, seen, score, b.f32(kNegativeInfinity));
      memref::StoreOp::create(b, score, scores, ValueRange{scoreAt(key)});
    });
  }

  /// exp2(score - max) in place; returns their sum.
  Value emitSoftmax() {
    auto loadOne = [&](Value key) -> Value {
      return memref::LoadOp::create(b, scores, ValueRange{scoreAt(key)});
    };
    Value largest = b.forLoop(
        b.index(0), rows.seqlenKv, 1, {b.f32(kNegativeInfinity)},
        [&](Value key, ValueRange largest) {
          return SmallVector<Value>{maximum(b, loadOne(key), largest[0])};
        })[0];
    Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, largest,
                                       b.f32(kNegativeInfinity));
    Value shift = arith::SelectOp::create(b, none, b.f32(0.0), largest);
    // Whole vectors, then single keys: a row of the matrix ends at max_kv.
    Value whole = b.mul(b.divide(rows.seqlenKv, lanes), lanes);
    Value sum = b.splatF32(0.0, lanes);
    sum = b.forLoop(b.index(0), whole, lanes, {sum},
                    [&](Value key, ValueRange sum) -> SmallVector<Value> {
                      return {arith::AddFOp::create(
                          b, sum[0], exponentiate(key, lanes, shift))};
                    })[0];
    sum = sumLanes(b, sum);
    return b.forLoop(whole, rows.seqlenKv, 1, {sum},
                     [&](Value key, ValueRange sum) -> SmallVector<Value> {
                       Value p = vector::ExtractOp::create(
                           b, exponentiate(key, 1, shift),
                           ArrayRef<int64_t>{0});
                       return {arith::AddFOp::create(b, sum[0], p)};
                     })[0];
  }

  Value exponentiate(Value key, int64_t count, Value shift) {
    Value s = vector::LoadOp::create(b, b.vectorF32(count), scores,
                                     ValueRange{scoreAt(key)});
    Value shifts = vector::BroadcastOp::create(b, b.vectorF32(count), shift);
    Value p = emitExp2(b, arith::SubFOp::create(b, s, shifts));
    vector::StoreOp::create(b, p, scores, ValueRange{scoreAt(key)});
    return p;
  }

  void emitValues(Value sum, Value out, Value outOffset) {
    int64_t chunks = llvm::divideCeil(shape.headDimV, lanes);
    SmallVector<Value> zero(chunks, b.splatF32(0.0, lanes));
    SmallVector<Value> acc = b.forLoop(
        b.index(0), rows.seqlenKv, 1, zero,
        [&](Value key, ValueRange acc) -> SmallVector<Value> {
          Value p = memref::LoadOp::create(b, scores, ValueRange{scoreAt(key)});
          Value ps = vector::BroadcastOp::create(b, b.vectorF32(lanes), p);
          SmallVector<Value> values = loadChunks(key, /*isKey=*/false);
          SmallVector<Value> next;
          for (int64_t c = 0; c < chunks; ++c)
            next.push_back(math::FmaOp::create(b, ps, values[c], acc[c]));
          return next;
        });
    Value seen =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, sum, b.f32(0.0));
    Value factor = arith::SelectOp::create(
        b, seen, arith::DivFOp::create(b, b.f32(1.0), sum), b.f32(0.0));
    Value factors = vector::BroadcastOp::create(b, b.vectorF32(lanes), factor);
    for (int64_t c = 0; c < chunks; ++c) {
      Value value = arith::MulFOp::create(b, acc[c], factors);
      value = emitTruncate(b, context.isa, value, shape.storedType);
      int64_t count = std::min(lanes, shape.headDimV - c * lanes);
      forEachPiece(count, lanes, [&](int64_t at, int64_t size) {
        Value piece = size == lanes
                          ? value
                          : vector::ExtractStridedSliceOp::create(
                                b, value, ArrayRef<int64_t>{at},
                                ArrayRef<int64_t>{size}, ArrayRef<int64_t>{1})
                                .getResult();
        vector::StoreOp::create(b, piece, out,
                                ValueRange{b.add(outOffset, c * lanes + at)});
      });
    }
  }

  KernelBuilder &b;
  AttentionContext &context;
  const AttentionKernelShape &shape;
  const AttentionRows &rows;
  const CacheView &cache;
  Value scores, scoreRow;
  KeyRange<Value> visible;
  int64_t lanes;
};

} // namespace

void prefill::emitMaterialized(AttentionContext &context,
                               const AttentionRows &rows,
                               const CacheView &cache, const ScoreView &scores,
                               Value query, Value out) {
  KernelBuilder &b = context.b;
  const AttentionKernelShape &shape = context.shape;
  forEachStoredRow(b, context.abi.batch(), rows, [&](Value row, Value outRow) {
    KeyRange<Value> visible =
        visibleKeys(IndexArithmetic{b, b.getLoc()}, shape.mask,
                    SequenceLengths<Value>{rows.seqlenQ, rows.seqlenKv},
                    b.add(rows.rowBegin, row));
    Value batchRow = b.add(rows.batchRow, row);
    b.forLoop(b.index(0), b.index(shape.group), 1, [&](Value inGroup) {
      Value head = b.add(b.mul(rows.kvHead, shape.group), inGroup);
      // [num_q_heads, M_pad, max_kv]
      Value scoreRow = b.mul(
          b.add(b.mul(head, context.abi.batch().rows), batchRow), scores.maxKv);
      auto channel = [&](Value ofRow, int64_t pitch, int64_t headDim) {
        return b.add(b.mul(ofRow, pitch), b.mul(head, headDim));
      };
      PlainRowEmitter(context, rows, cache, scores.buffer, scoreRow, visible)
          .emit(query, channel(batchRow, shape.queryPitch, shape.headDimQk),
                out, channel(outRow, shape.outPitch, shape.headDimV));
    });
  });
}
