//===- AttentionTile.cpp - online softmax over one KV block ---------------===//
//
// For every few rows: S = Q K^T by the microkernel into scratch that stays in
// the first-level cache, with the rows' maxima taken from the accumulators;
// P = exp2(S - row_max) and its row sum in one pass; then
// O = O * exp2(old_max - new_max) + P V by the microkernel, whose accumulators
// start at the rescaled O. What is one number for a row is computed for all
// rows of the microkernel in one vector.
//
// bf16: P is rounded before the product, and row_sum adds up the rounded
// values. The weights of a row then sum to exactly 1 and rounding moves the
// result towards some values and away from others, instead of scaling it.
//
//===----------------------------------------------------------------------===//
#include "Attention.h"
#include "VectorMemory.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "prefill/Analysis/IndexArithmetic.h"
#include "prefill/Codegen/CPU/AttentionTileTable.h"
#include "prefill/Codegen/CPU/Microkernel.h"
#include "prefill/Codegen/CPU/VectorMath.h"

using namespace mlir;
using namespace mlir::prefill;

/// Lanes of the widest vector of any variant: scratch has one size for all.
static constexpr int64_t kMaxLanes = 16;

AttentionScratch AttentionScratch::allocate(KernelBuilder &b, KernelABI &abi,
                                            const AttentionKernelShape &shape) {
  auto make = [&](Type type, int64_t count) {
    return abi.allocateScratch(type, count);
  };
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  AttentionScratch scratch;
  scratch.query = make(shape.elementType, shape.rows() * shape.depth());
  if (shape.isPacked) {
    scratch.values = make(shape.elementType, shape.valuePanelElements());
  } else {
    scratch.keys = make(shape.elementType, shape.blockKv * shape.depth());
    scratch.values = make(shape.elementType, shape.blockKv * shape.columns());
  }
  scratch.accumulator = make(f32, shape.rows() * shape.columns());
  scratch.rowMax = make(f32, shape.rows());
  scratch.rowSum = make(f32, shape.rows() * kMaxLanes);
  scratch.firstKey = make(i32, shape.rows());
  scratch.numKeys = make(i32, shape.rows());
  scratch.keyOffsets = make(b.getI64Type(), shape.blockKv);
  scratch.scores = make(f32, kAttentionMicroRows * shape.blockKv);
  scratch.probabilities =
      shape.elementType.isF32()
          ? scratch.scores
          : make(shape.elementType, kAttentionMicroRows * shape.blockKv);
  scratch.shift = make(f32, kAttentionMicroRows);
  scratch.rescale = make(f32, kAttentionMicroRows);
  return scratch;
}

namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

Value loadVector(KernelBuilder &b, Value memref, Value offset, int64_t lanes) {
  return vector::LoadOp::create(b, b.vectorF32(lanes), memref,
                                ValueRange{offset});
}

void storeVector(KernelBuilder &b, Value vector, Value memref, Value offset) {
  vector::StoreOp::create(b, vector, memref, ValueRange{offset});
}

Value broadcast(KernelBuilder &b, Value scalar, int64_t lanes) {
  return vector::BroadcastOp::create(
      b, VectorType::get({lanes}, scalar.getType()), scalar);
}

/// A few rows of the workgroup against one KV block.
class RowTileEmitter {
public:
  RowTileEmitter(AttentionContext &context, const AttentionBlock &block,
                 BlockMask mask, Value firstRow, int64_t count)
      : b(context.b), isa(context.isa), shape(context.shape),
        scratch(context.scratch), block(block), mask(mask), firstRow(firstRow),
        count(count), lanes(context.isa.lanes) {}

  void emit() {
    if (mask == BlockMask::None) {
      firstPanel = b.index(0);
      endPanel = b.index(shape.blockKv / kPanelN);
      emitProducts();
      return;
    }
    // Panels that no row sees are left out of both products.
    Value lastRow = b.add(firstRow, count - 1);
    Value begin = b.sub(loadKey(scratch.firstKey, firstRow), block.firstKey);
    Value end = b.sub(b.add(loadKey(scratch.firstKey, lastRow),
                            loadKey(scratch.numKeys, lastRow)),
                      block.firstKey);
    auto clamp = [&](Value key) {
      return b.min(b.max(key, b.index(0)), block.numKeys);
    };
    firstPanel = b.divide(clamp(begin), kPanelN);
    endKey = clamp(end);
    endPanel = b.ceilDivide(endKey, kPanelN);
    Value lastBegin = b.sub(loadKey(scratch.firstKey, lastRow), block.firstKey);
    Value firstEnd = b.sub(b.add(loadKey(scratch.firstKey, firstRow),
                                 loadKey(scratch.numKeys, firstRow)),
                           block.firstKey);
    fullBegin = b.ceilDivide(clamp(lastBegin), kPanelN);
    fullEnd = b.divide(clamp(firstEnd), kPanelN);
    b.ifThen(b.compare(arith::CmpIPredicate::slt, firstPanel, endPanel),
             [&] { emitProducts(); });
  }

private:
  Value loadKey(Value memref, Value row) {
    return b.toIndex(memref::LoadOp::create(b, memref, ValueRange{row}));
  }

  void emitProducts() {
    SmallVector<Value> largest = emitScores();
    emitRowState(largest);
    b.forLoop(b.index(0), b.index(count), 1,
              [&](Value row) { emitProbabilities(row); });
    emitAccumulators();
  }

  /// Columns that one microkernel covers. A single row takes the whole panel,
  /// to have enough accumulators in flight.
  int64_t microColumns() const {
    return count == 1 ? kPanelN : std::min(2 * lanes, kPanelN);
  }

  /// Stores the scores of all panels; returns the largest of each row by lane.
  SmallVector<Value> emitScores() {
    SmallVector<Value> largest(count, b.splatF32(kNegativeInfinity, lanes));
    return b.forLoop(
        firstPanel, endPanel, 1, largest,
        [&](Value panel, ValueRange largest) -> SmallVector<Value> {
          SmallVector<Value> next(largest);
          for (int64_t part = 0; part < kPanelN; part += microColumns())
            emitScorePart(panel, part, next);
          return next;
        });
  }

  void emitScorePart(Value panel, int64_t part, SmallVector<Value> &largest) {
    int64_t vectors = microColumns() / lanes;
    MicrokernelOperands operands;
    operands.elementType = shape.elementType;
    operands.a = scratch.query;
    for (int64_t r = 0; r < count; ++r)
      operands.aRowOffsets.push_back(b.mul(b.add(firstRow, r), shape.depth()));
    operands.b = shape.isPacked ? block.cache.key : scratch.keys;
    Value start = shape.isPacked ? pageOffset(panel)
                                 : b.mul(panel, shape.keyPanelElements());
    operands.bOffsets =
        panelVectorOffsets(b, isa, shape.elementType, start, part, vectors);
    operands.bStepStride = kPanelN * shape.kPackSize();
    operands.steps = b.index(shape.depth() / shape.kPackSize());
    if (prefetchesPages())
      operands.prefetchDistance = b.sub(pageOffset(b.add(panel, 1)), start);
    SmallVector<Value> scores = emitMicrokernel(b, isa, operands);
    if (shape.scoreScale != 1.0)
      for (Value &score : scores)
        score = arith::MulFOp::create(b, score,
                                      b.splatF32(shape.scoreScale, lanes));
    Value column = b.add(b.mul(panel, kPanelN), part);
    if (mask == BlockMask::Edge)
      scores = maskScores(panel, column, scores);
    for (int64_t r = 0; r < count; ++r)
      for (int64_t v = 0; v < vectors; ++v) {
        Value score = scores[r * vectors + v];
        storeVector(b, score, scratch.scores,
                    b.add(column, r * shape.blockKv + v * lanes));
        largest[r] = maximum(b, score, largest[r]);
      }
  }

  /// Short queries are as fast as memory; with more rows a page is in the
  /// cache when it is needed again.
  bool prefetchesPages() const {
    return shape.isPacked && count < kAttentionMicroRows;
  }

  /// Where the page of a panel begins in the cache.
  Value pageOffset(Value panel) {
    return b.toIndex(
        memref::LoadOp::create(b, scratch.keyOffsets, ValueRange{panel}));
  }

  /// The scores with -inf where a row does not see the key. Panels that all
  /// rows see pass as they are.
  SmallVector<Value> maskScores(Value panel, Value column,
                                ArrayRef<Value> scores) {
    int64_t vectors = scores.size() / count;
    Value isFull = arith::AndIOp::create(
        b, b.compare(arith::CmpIPredicate::sge, panel, fullBegin),
        b.compare(arith::CmpIPredicate::slt, panel, fullEnd));
    auto branch =
        scf::IfOp::create(b, ValueRange(scores).getTypes(), isFull,
                          /*addThenBlock=*/true, /*addElseBlock=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(branch.thenBlock());
    scf::YieldOp::create(b, scores);
    b.setInsertionPointToEnd(branch.elseBlock());
    SmallVector<Value> masked;
    for (int64_t r = 0; r < count; ++r)
      for (int64_t v = 0; v < vectors; ++v)
        masked.push_back(emitMask(scores[r * vectors + v], b.add(firstRow, r),
                                  b.add(column, v * lanes)));
    scf::YieldOp::create(b, masked);
    return SmallVector<Value>(branch.getResults());
  }

  /// -inf where the row does not see the key: with the row's keys
  /// [first, first + n), one unsigned comparison of key - first with n.
  Value emitMask(Value score, Value row, Value column) {
    auto scalar = [&](Value memref) -> Value {
      return memref::LoadOp::create(b, memref, ValueRange{row});
    };
    Value key = arith::IndexCastOp::create(b, b.getI32Type(),
                                           b.add(block.firstKey, column));
    Value first = arith::SubIOp::create(b, key, scalar(scratch.firstKey));
    SmallVector<int32_t> steps;
    for (int64_t i = 0; i < lanes; ++i)
      steps.push_back(i);
    Value iota = arith::ConstantOp::create(
        b, DenseElementsAttr::get(VectorType::get({lanes}, b.getI32Type()),
                                  ArrayRef(steps)));
    Value distance = arith::AddIOp::create(b, broadcast(b, first, lanes), iota);
    Value seen =
        arith::CmpIOp::create(b, arith::CmpIPredicate::ult, distance,
                              broadcast(b, scalar(scratch.numKeys), lanes));
    return arith::SelectOp::create(b, seen, score,
                                   b.splatF32(kNegativeInfinity, lanes));
  }

  /// Of all rows at once: new maximum, shift of the scores and rescaling
  /// factor.
  void emitRowState(ArrayRef<Value> largest) {
    auto larger = [&](Value lhs, Value rhs) { return maximum(b, lhs, rhs); };
    Value oldMax = loadVector(b, scratch.rowMax, firstRow, count);
    Value newMax = larger(reduceRows(b, largest, larger), oldMax);
    storeVector(b, newMax, scratch.rowMax, firstRow);
    // A row without a key so far: -inf - -inf would be NaN.
    Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, newMax,
                                       b.splatF32(kNegativeInfinity, count));
    Value shift =
        arith::SelectOp::create(b, none, b.splatF32(0.0, count), newMax);
    storeVector(b, shift, scratch.shift, b.index(0));
    // Exactly 1 where the maximum stays.
    Value rescale = emitExp2(b, arith::SubFOp::create(b, oldMax, shift));
    storeVector(b, rescale, scratch.rescale, b.index(0));
  }

  Value loadBroadcast(Value memref, Value index) {
    return broadcast(b, memref::LoadOp::create(b, memref, ValueRange{index}),
                     lanes);
  }

  /// Of one row: probabilities and their sum.
  void emitProbabilities(Value row) {
    Value shifts = loadBroadcast(scratch.shift, row);
    Value rowScores = b.mul(row, shape.blockKv);
    Value sumPlace = b.mul(b.add(firstRow, row), kMaxLanes);
    Value oldSum =
        arith::MulFOp::create(b, loadVector(b, scratch.rowSum, sumPlace, lanes),
                              loadBroadcast(scratch.rescale, row));
    int64_t pairs = kPanelN / (2 * lanes);
    SmallVector<Value> sums(2 * pairs, b.splatF32(0.0, lanes));
    sums[0] = oldSum;
    sums =
        b.forLoop(firstPanel, endPanel, 1, sums,
                  [&](Value panel, ValueRange sums) -> SmallVector<Value> {
                    SmallVector<Value> next(sums);
                    Value at = b.add(rowScores, b.mul(panel, kPanelN));
                    for (int64_t pair = 0; pair < pairs; ++pair)
                      emitProbabilityPair(b.add(at, 2 * pair * lanes), shifts,
                                          next[2 * pair], next[2 * pair + 1]);
                    return next;
                  });
    Value sum = sums[0];
    for (size_t v = 1; v < sums.size(); ++v)
      sum = arith::AddFOp::create(b, sum, sums[v]);
    storeVector(b, sum, scratch.rowSum, sumPlace);
  }

  /// Two vectors of scores become probabilities, whose sums are added to
  /// `evenSum` and `oddSum`.
  void emitProbabilityPair(Value at, Value shifts, Value &evenSum,
                           Value &oddSum) {
    auto probability = [&](Value place) {
      Value score = loadVector(b, scratch.scores, place, lanes);
      return emitExp2For(b, isa, arith::SubFOp::create(b, score, shifts),
                         shape.elementType);
    };
    Value even = probability(at), odd = probability(b.add(at, lanes));
    SmallVector<Value> rounded =
        emitTruncatePair(b, isa, even, odd, shape.elementType);
    storeVector(b, rounded[0], scratch.probabilities, at);
    if (rounded.size() == 1) {
      // Both vectors at once: a product with ones adds up the pairs.
      Type type = rounded[0].getType();
      Value ones = arith::ConstantOp::create(
          b, DenseElementsAttr::get(cast<VectorType>(type),
                                    b.getFloatAttr(shape.elementType, 1.0)));
      evenSum = x86vector::DotBF16Op::create(b, evenSum, rounded[0], ones);
      return;
    }
    storeVector(b, rounded[1], scratch.probabilities, b.add(at, lanes));
    if (!shape.elementType.isF32()) {
      even = arith::ExtFOp::create(b, b.vectorF32(lanes), rounded[0]);
      odd = arith::ExtFOp::create(b, b.vectorF32(lanes), rounded[1]);
    }
    evenSum = arith::AddFOp::create(b, evenSum, even);
    oddSum = arith::AddFOp::create(b, oddSum, odd);
  }

  void emitAccumulators() {
    b.forLoop(b.index(0), b.index(shape.columns() / kPanelN), 1,
              [&](Value columnPanel) {
                for (int64_t part = 0; part < kPanelN; part += microColumns())
                  emitAccumulatorPart(columnPanel, part);
              });
  }

  /// Steps of the second product over a panel: keys that no row sees are left
  /// out, whose values may be those of later tokens.
  Value valueSteps(Value panel) {
    int64_t pack = shape.kPackSize();
    if (mask == BlockMask::None)
      return b.index(kPanelN / pack);
    Value keys = b.sub(endKey, b.mul(panel, kPanelN));
    return b.min(b.ceilDivide(keys, pack), kPanelN / pack);
  }

  void emitAccumulatorPart(Value columnPanel, int64_t part) {
    int64_t vectors = microColumns() / lanes;
    SmallVector<Value> sums, places;
    for (int64_t r = 0; r < count; ++r) {
      Value rescale = loadBroadcast(scratch.rescale, b.index(r));
      Value row = b.add(b.mul(b.add(firstRow, r), shape.columns()),
                        b.mul(columnPanel, kPanelN));
      for (int64_t v = 0; v < vectors; ++v) {
        places.push_back(b.add(row, part + v * lanes));
        sums.push_back(arith::MulFOp::create(
            b, loadVector(b, scratch.accumulator, places.back(), lanes),
            rescale));
      }
    }
    auto multiply = [&](Value begin, Value end, Value values,
                        llvm::function_ref<Value(Value)> panelStart) {
      sums = b.forLoop(begin, end, 1, sums, [&](Value panel, ValueRange sums) {
        MicrokernelOperands operands;
        operands.elementType = shape.elementType;
        operands.a = scratch.probabilities;
        for (int64_t r = 0; r < count; ++r)
          operands.aRowOffsets.push_back(
              b.add(b.mul(panel, kPanelN), r * shape.blockKv));
        operands.b = values;
        Value start =
            b.add(panelStart(panel), b.mul(columnPanel, kPanelN * kPanelN));
        operands.bOffsets =
            panelVectorOffsets(b, isa, shape.elementType, start, part, vectors);
        operands.bStepStride = kPanelN * shape.kPackSize();
        operands.steps = valueSteps(panel);
        if (prefetchesPages() && values == block.cache.value)
          operands.prefetchDistance =
              b.sub(pageOffset(b.add(panel, 1)), pageOffset(panel));
        return emitMicrokernel(b, isa, operands, sums);
      });
    };
    auto inScratch = [&](Value panel) {
      return b.mul(panel, shape.valuePanelElements());
    };
    auto inCache = [&](Value panel) { return pageOffset(panel); };
    if (!shape.isPacked) {
      multiply(firstPanel, endPanel, scratch.values, inScratch);
    } else if (mask == BlockMask::None) {
      multiply(firstPanel, endPanel, block.cache.value, inCache);
    } else {
      // The values of a page with unused slots come from their copy.
      Value copied =
          b.min(b.max(b.divide(block.numKeys, kPanelN), firstPanel), endPanel);
      multiply(firstPanel, copied, block.cache.value, inCache);
      multiply(copied, endPanel, scratch.values,
               [&](Value) { return b.index(0); });
    }
    for (auto [sum, place] : llvm::zip(sums, places))
      storeVector(b, sum, scratch.accumulator, place);
  }

  KernelBuilder &b;
  const CpuIsa &isa;
  const AttentionKernelShape &shape;
  const AttentionScratch &scratch;
  const AttentionBlock &block;
  BlockMask mask;
  Value firstRow;
  int64_t count;
  int64_t lanes;
  Value firstPanel, endPanel;
  /// Behind the last key that any row sees; of blocks with a mask.
  Value endKey;
  /// Panels that every row sees whole; of blocks with a mask.
  Value fullBegin, fullEnd;
};

} // namespace

void prefill::initRows(AttentionContext &context, const AttentionRows &rows) {
  KernelBuilder &b = context.b;
  const AttentionKernelShape &shape = context.shape;
  const AttentionScratch &scratch = context.scratch;
  int64_t lanes = context.isa.lanes;
  Value count = b.sub(rows.rowEnd, rows.rowBegin);
  b.forLoop(b.index(0), count, 1, [&](Value row) {
    KeyRange<Value> keys =
        visibleKeys(IndexArithmetic{b, b.getLoc()}, shape.mask,
                    SequenceLengths<Value>{rows.seqlenQ, rows.seqlenKv},
                    b.add(rows.rowBegin, row));
    auto toI32 = [&](Value index) -> Value {
      return arith::IndexCastOp::create(b, b.getI32Type(), index);
    };
    Value first = toI32(keys.begin);
    Value number = toI32(b.max(b.sub(keys.end, keys.begin), b.index(0)));
    b.forLoop(b.index(0), b.index(shape.group), 1, [&](Value head) {
      Value state = b.add(b.mul(row, shape.group), head);
      auto set = [&](Value value, Value memref) {
        memref::StoreOp::create(b, value, memref, ValueRange{state});
      };
      set(first, scratch.firstKey);
      set(number, scratch.numKeys);
      set(b.f32(kNegativeInfinity), scratch.rowMax);
      storeVector(b, b.splatF32(0.0, lanes), scratch.rowSum,
                  b.mul(state, kMaxLanes));
    });
  });
  b.forLoop(b.index(0), b.mul(count, shape.group * shape.columns()), lanes,
            [&](Value i) {
              storeVector(b, b.splatF32(0.0, lanes), scratch.accumulator, i);
            });
}

void prefill::emitBlockForRows(AttentionContext &context,
                               const AttentionRows &rows,
                               const AttentionBlock &block, BlockMask mask) {
  KernelBuilder &b = context.b;
  Value end = b.mul(b.sub(rows.rowEnd, rows.rowBegin), context.shape.group);
  Value done = b.index(0);
  for (int64_t count : attentionMicroRows(context.isa)) {
    Value stop =
        count == 1
            ? end
            : b.add(done, b.mul(b.divide(b.sub(end, done), count), count));
    b.forLoop(done, stop, count, [&](Value row) {
      RowTileEmitter(context, block, mask, row, count).emit();
    });
    done = stop;
  }
}

void prefill::storeRows(AttentionContext &context, const AttentionRows &rows,
                        Value out) {
  KernelBuilder &b = context.b;
  const AttentionKernelShape &shape = context.shape;
  int64_t lanes = context.isa.lanes;
  forEachStoredRow(b, context.abi.batch(), rows, [&](Value row, Value outRow) {
    Value target = b.mul(outRow, shape.numHeads() * shape.headDimV);
    target = b.add(target, b.mul(rows.kvHead, shape.group * shape.headDimV));
    b.forLoop(b.index(0), b.index(shape.group), 1, [&](Value head) {
      Value state = b.add(b.mul(row, shape.group), head);
      Value sum = sumLanes(b, loadVector(b, context.scratch.rowSum,
                                         b.mul(state, kMaxLanes), lanes));
      Value seen =
          arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, sum, b.f32(0.0));
      Value factor = arith::SelectOp::create(
          b, seen, arith::DivFOp::create(b, b.f32(1.0), sum), b.f32(0.0));
      Value from = b.mul(state, shape.columns());
      Value to = b.add(target, b.mul(head, shape.headDimV));
      forEachPiece(shape.headDimV, lanes, [&](int64_t at, int64_t size) {
        // The accumulator is padded: whole vectors are read.
        Value value = arith::MulFOp::create(
            b,
            loadVector(b, context.scratch.accumulator, b.add(from, at), size),
            broadcast(b, factor, size));
        storeVector(b, emitTruncate(b, context.isa, value, shape.storedType),
                    out, b.add(to, at));
      });
    });
  });
}
