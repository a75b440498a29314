//===- AttentionPlain.cpp - attention with the score matrix in memory -----===//
//
// The baseline that prefill-convert-attention-to-online is compared against: a
// warp for each row and head, three passes over all keys of the sequence,
// scores to memory, softmax in memory, values. It skips no block, shares no key
// among rows and uses no matrix instruction.
//
//===----------------------------------------------------------------------===//
#include "Attention.h"

using namespace mlir;
using namespace mlir::prefill;

static constexpr int64_t kLanes = 32;
static constexpr double kInfinity = std::numeric_limits<double>::infinity();

namespace {

/// One query row of one head, by one warp.
class PlainRowEmitter {
public:
  PlainRowEmitter(CudaBuilder &b, const AttentionKernelShape &shape,
                  const AttentionRows &rows, const CudaBatch &batch,
                  const CudaCache &cache, Value lane)
      : b(b), shape(shape), rows(rows), batch(batch), cache(cache), lane(lane) {
  }

  void emit(Value query, Value scores, Value out, KeyRange<Value> visible) {
    Value largest = emitScores(query, scores, visible);
    Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, largest,
                                       b.f32(-kInfinity));
    Value sum = emitProbabilities(scores, b.select(none, b.f32(0.0), largest));
    // The lanes read each other's probabilities.
    b.syncWarp("attention.probabilities_stored");
    emitValues(scores, sum, out, visible);
  }

private:
  /// `for key = lane; key < seqlen_kv; key += 32` with a carried f32.
  Value forKeys(Value init, llvm::function_ref<Value(Value, Value)> body) {
    auto loop = scf::ForOp::create(b, lane, rows.seqlenKv, b.i32(kLanes),
                                   ValueRange{init});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(loop.getBody());
    Value next = body(loop.getInductionVar(), loop.getRegionIterArgs()[0]);
    scf::YieldOp::create(b, ValueRange{next});
    return loop.getResult(0);
  }

  Value reduce(Value value, llvm::function_ref<Value(Value, Value)> combine,
               StringRef site) {
    for (int64_t mask = kLanes / 2; mask > 0; mask /= 2)
      value = combine(value, b.shuffleXor(value, mask, site));
    return value;
  }

  Value rowOf(Value memory, Value key) {
    Value offset = cache.headOffset(
        b,
        cache.tokenOffset(b, batch, b.toIndex(rows.sequence), b.toIndex(key)),
        b.toIndex(rows.kvHead));
    return b.elementPointer(memory, offset, shape.elementType);
  }

  /// The eight numbers of a chunk.
  SmallVector<Value> loadNumbers(Value row, Value chunk, StringRef site) {
    SmallVector<Value> numbers;
    Value from = b.pointer(row, b.toI64(b.mul(chunk, kChunkBytes)));
    for (Value word : b.loadChunk(from, site)) {
      auto [first, second] = b.unpack(word, shape.elementType);
      numbers.append({first, second});
    }
    return numbers;
  }

  Value scorePointer(Value scores, Value key) {
    return b.elementPointer(scores, key, b.getF32Type());
  }

  /// Scores of all keys to memory; returns the largest, in all lanes.
  Value emitScores(Value query, Value scores, KeyRange<Value> visible) {
    Value largest = forKeys(b.f32(-kInfinity), [&](Value key, Value largest) {
      Value row = rowOf(cache.key, key);
      auto loop = scf::ForOp::create(
          b, b.i32(0), b.i32(shape.heads.headDimQk / kChunkElements), b.i32(1),
          ValueRange{b.f32(0.0)});
      {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(loop.getBody());
        Value chunk = loop.getInductionVar();
        Value sum = loop.getRegionIterArgs()[0];
        SmallVector<Value> q = loadNumbers(query, chunk, "attention.load_q");
        SmallVector<Value> k = loadNumbers(row, chunk, "attention.load_k");
        for (auto [x, y] : llvm::zip(q, k))
          sum = b.fma(x, y, sum);
        scf::YieldOp::create(b, ValueRange{sum});
      }
      Value score = b.fmul(loop.getResult(0), shape.scoreScale);
      Value seen =
          b.both(b.compare(arith::CmpIPredicate::sge, key, visible.begin),
                 b.less(key, visible.end));
      score = b.select(seen, score, b.f32(-kInfinity));
      b.store(score, scorePointer(scores, key), "attention.store_score");
      return b.fmax(largest, score);
    });
    return reduce(
        largest, [&](Value x, Value y) { return b.fmax(x, y); },
        "attention.row_max");
  }

  /// exp2(score - shift) in place; returns their sum, in all lanes.
  Value emitProbabilities(Value scores, Value shift) {
    Value sum = forKeys(b.f32(0.0), [&](Value key, Value sum) {
      Value place = scorePointer(scores, key);
      Value score = b.load(b.getF32Type(), place, "attention.load_score");
      Value probability = b.exp2(b.fsub(score, shift));
      b.store(probability, place, "attention.store_probability");
      return b.fadd(sum, probability);
    });
    return reduce(
        sum, [&](Value x, Value y) { return b.fadd(x, y); },
        "attention.row_sum");
  }

  /// A chunk of the output for each lane; invisible keys are left out.
  void emitValues(Value scores, Value sum, Value out, KeyRange<Value> visible) {
    Value empty =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, sum, b.f32(0.0));
    Value factor = b.select(empty, b.f32(0.0), b.reciprocal(sum));
    b.ifThen(b.less(lane, shape.heads.headDimV / kChunkElements), [&] {
      auto loop = scf::ForOp::create(b, visible.begin,
                                     b.min(visible.end, rows.seqlenKv),
                                     b.i32(1), b.zeros(kChunkElements));
      {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(loop.getBody());
        Value key = loop.getInductionVar();
        Value probability = b.load(b.getF32Type(), scorePointer(scores, key),
                                   "attention.load_probability");
        SmallVector<Value> v =
            loadNumbers(rowOf(cache.value, key), lane, "attention.load_v");
        SmallVector<Value> next;
        for (auto [sum, x] : llvm::zip(loop.getRegionIterArgs(), v))
          next.push_back(b.fma(probability, x, sum));
        scf::YieldOp::create(b, next);
      }
      SmallVector<Value> words;
      for (int64_t i = 0; i < kChunkElements; i += 2)
        words.push_back(b.pack(b.fmul(loop.getResult(i), factor),
                               b.fmul(loop.getResult(i + 1), factor),
                               shape.elementType));
      b.storeChunk(words, b.pointer(out, b.toI64(b.mul(lane, kChunkBytes))),
                   "attention.store");
    });
  }

  CudaBuilder &b;
  const AttentionKernelShape &shape;
  const AttentionRows &rows;
  const CudaBatch &batch;
  const CudaCache &cache;
  Value lane;
};

} // namespace

void prefill::emitMaterializedAttention(
    CudaBuilder &b, const AttentionKernelShape &shape,
    const AttentionRows &rows, const CudaBatch &batch, const CudaCache &cache,
    const CudaScores &scores, Value query, Value out) {
  Value lane = b.lane();
  PlainRowEmitter emitter(b, shape, rows, batch, cache, lane);
  auto loop = scf::ForOp::create(b, b.warp(), b.mul(rows.count, shape.group()),
                                 b.i32(kPlainAttentionWarps));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(loop.getBody()->getTerminator());
  Value index = loop.getInductionVar();
  Value row = b.divide(index, shape.group());
  Value head = b.add(b.mul(rows.kvHead, shape.group()),
                     b.remainder(index, shape.group()));
  Value batchRow = b.toI64(b.add(rows.batchRow, row));
  Value head64 = b.toI64(head);
  auto rowPointer = [&](Value memory, int64_t rowElements, int64_t headDim) {
    Value element = b.add(b.mul(batchRow, rowElements), b.mul(head64, headDim));
    return b.elementPointer(memory, element, shape.elementType);
  };
  Value scoreRow = b.add(b.mul(head64, b.toI64(batch.rows)), batchRow);
  Value rowScores = b.elementPointer(
      scores.pointer, b.mul(scoreRow, b.toI64(scores.maxKv)), b.getF32Type());
  emitter.emit(
      rowPointer(query, shape.queryRowElements(), shape.heads.headDimQk),
      rowScores, rowPointer(out, shape.outRowElements(), shape.heads.headDimV),
      emitVisibleKeys(b, shape, rows, b.add(rows.rowBegin, row)));
}
