//===- AttentionTile.cpp - online softmax over one KV block ---------------===//
//
// For every few rows: S = Q K^T by the microkernel into scratch that stays in
// the first-level cache, with the rows' maxima taken from the accumulators;
// P = exp2(S - row_max) and its row sum in one pass; then
// O = O * exp2(old_max - new_max) + P V by the microkernel, whose accumulators
// start at the rescaled O. What is one number for a row is computed for all
// rows of the microkernel in one vector.
//
// bf16 by vdpbf16ps or AMX: P is rounded before the product, and row_sum adds
// up the rounded values. The weights of a row then sum to exactly 1 and
// rounding moves the result towards some values and away from others, instead
// of scaling it.
//
//===----------------------------------------------------------------------===//
#include "AmxTiles.h"
#include "AttentionRowTile.h"
#include "VectorMemory.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Analysis/IndexArithmetic.h"
#include "prefill/Codegen/CPU/AttentionTileTable.h"
#include "prefill/Codegen/CPU/Microkernel.h"
#include "prefill/Codegen/CPU/VectorMath.h"

using namespace mlir;
using namespace mlir::prefill;

AttentionScratch AttentionScratch::allocate(KernelBuilder &b, KernelABI &abi,
                                            const CpuIsa &isa,
                                            const AttentionKernelShape &shape) {
  bool usesAmx = attentionUsesAmx(isa, shape);
  int64_t microRows = usesAmx ? kAmxRows : kAttentionMicroRows;
  int64_t rows = llvm::alignTo(shape.rows(), usesAmx ? kAmxRows : 1);
  auto make = [&](Type type, int64_t count) {
    return abi.allocateScratch(type, count);
  };
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  AttentionScratch scratch;
  scratch.query = make(shape.elementType, rows * shape.depth());
  if (shape.isPacked)
    scratch.lastValues = make(shape.storedType, shape.valuePanelElements());
  if (!shape.canReadPages()) {
    scratch.keys = make(shape.elementType, shape.blockKv * shape.depth());
    scratch.values = make(shape.elementType, shape.blockKv * shape.columns());
  }
  scratch.accumulator = make(f32, rows * shape.columns());
  scratch.rowMax = make(f32, rows);
  scratch.rowSum = make(f32, rows * kMaxLanes);
  scratch.firstKey = make(i32, rows);
  scratch.numKeys = make(i32, rows);
  scratch.keyOffsets = make(b.getI64Type(), shape.blockKv);
  scratch.scores = make(f32, microRows * shape.blockKv);
  scratch.probabilities =
      shape.elementType.isF32()
          ? scratch.scores
          : make(shape.elementType, microRows * shape.blockKv);
  scratch.shift = make(f32, microRows);
  scratch.rescale = make(f32, microRows);
  if (usesAmx)
    scratch.largest = make(f32, kAmxRows * kMaxLanes);
  return scratch;
}

namespace {

/// The products by microkernels on vectors.
class VectorRowTile : public RowTileEmitter {
public:
  VectorRowTile(AttentionContext &context, const AttentionBlock &block,
                BlockMask mask, Value firstRow, int64_t count)
      : RowTileEmitter(context, block, mask, firstRow, count,
                       context.b.index(count)) {}

private:
  /// Columns that one microkernel covers. A single row takes the whole panel,
  /// to have enough accumulators in flight.
  int64_t microColumns() const {
    return count == 1 ? kPanelN : std::min(2 * lanes, kPanelN);
  }

  /// Stores the scores of all panels; returns the largest of each row by lane.
  SmallVector<Value> emitScores() override {
    SmallVector<Value> largest(count, b.splatF32(kNegativeInfinity, lanes));
    return b.forLoop(
        firstPanel, endPanel, 1, largest,
        [&](Value panel, ValueRange largest) -> SmallVector<Value> {
          return b.forLoop(b.index(0), b.index(kPanelN), microColumns(),
                           largest, [&](Value part, ValueRange largest) {
                             return emitScorePart(panel, part, largest);
                           });
        });
  }

  /// Returns `largest` with the scores of a part of a panel.
  SmallVector<Value> emitScorePart(Value panel, Value part,
                                   ValueRange largest) {
    int64_t vectors = microColumns() / lanes;
    MicrokernelOperands operands;
    operands.elementType = shape.panelType();
    operands.a = scratch.query;
    for (int64_t r = 0; r < count; ++r)
      operands.aRowOffsets.push_back(b.mul(b.add(firstRow, r), shape.depth()));
    operands.b = shape.readsPages() ? block.cache.key : scratch.keys;
    Value start = shape.readsPages() ? pageOffset(panel)
                                     : b.mul(panel, shape.keyPanelElements());
    operands.bOffsets = panelVectorOffsets(
        b, isa, shape.panelType(), b.add(start, b.mul(part, shape.kPackSize())),
        vectors);
    operands.bStepStride = kPanelN * shape.kPackSize();
    operands.steps =
        b.index(llvm::divideCeil(shape.headDimQk, shape.kPackSize()));
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
    SmallVector<Value> next(largest);
    for (int64_t r = 0; r < count; ++r)
      for (int64_t v = 0; v < vectors; ++v) {
        Value score = scores[r * vectors + v];
        storeVector(b, score, scratch.scores,
                    b.add(column, r * shape.blockKv + v * lanes));
        next[r] = maximum(b, score, next[r]);
      }
    return next;
  }

  /// Short queries are as fast as memory; with more rows a page is in the
  /// cache when it is needed again. (On AVX2, whose microkernels have at most 6
  /// rows, all of them ask.)
  bool prefetchesPages() const {
    return shape.readsPages() && count < kAttentionMicroRows;
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

  void emitAccumulators() override {
    b.forLoop(b.index(0), b.index(shape.columns() / kPanelN), 1,
              [&](Value columnPanel) {
                b.forLoop(b.index(0), b.index(kPanelN), microColumns(),
                          [&](Value part) {
                            emitAccumulatorPart(columnPanel, part);
                          });
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

  void emitAccumulatorPart(Value columnPanel, Value part) {
    int64_t vectors = microColumns() / lanes;
    SmallVector<Value> sums, places;
    for (int64_t r = 0; r < count; ++r) {
      Value rescale = loadBroadcast(scratch.rescale, b.index(r));
      Value row = b.add(b.mul(b.add(firstRow, r), shape.columns()),
                        b.mul(columnPanel, kPanelN));
      for (int64_t v = 0; v < vectors; ++v) {
        places.push_back(b.add(b.add(row, part), v * lanes));
        sums.push_back(arith::MulFOp::create(
            b, loadVector(b, scratch.accumulator, places.back(), lanes),
            rescale));
      }
    }
    auto multiply = [&](Value begin, Value end, Value values,
                        llvm::function_ref<Value(Value)> panelStart) {
      sums = b.forLoop(begin, end, 1, sums, [&](Value panel, ValueRange sums) {
        MicrokernelOperands operands;
        operands.elementType = shape.panelType();
        operands.a = scratch.probabilities;
        for (int64_t r = 0; r < count; ++r)
          operands.aRowOffsets.push_back(
              b.add(b.mul(panel, kPanelN), r * shape.blockKv));
        operands.b = values;
        Value start =
            b.add(panelStart(panel), b.mul(columnPanel, kPanelN * kPanelN));
        operands.bOffsets = panelVectorOffsets(
            b, isa, shape.panelType(),
            b.add(start, b.mul(part, shape.kPackSize())), vectors);
        operands.bStepStride = kPanelN * shape.kPackSize();
        operands.steps = valueSteps(panel);
        if (prefetchesPages() && values == block.cache.value)
          operands.prefetchDistance =
              b.sub(pageOffset(b.add(panel, 1)), pageOffset(panel));
        return emitMicrokernel(b, isa, operands, sums);
      });
    };
    forEachRunOfValues(multiply);
    for (auto [sum, place] : llvm::zip(sums, places))
      storeVector(b, sum, scratch.accumulator, place);
  }
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
  if (attentionUsesAmx(context.isa, context.shape))
    return emitBlockOnAmx(context, rows, block, mask);
  Value end = b.mul(b.sub(rows.rowEnd, rows.rowBegin), context.shape.group);
  Value done = b.index(0);
  for (int64_t count : attentionMicroRows(context.isa)) {
    Value stop =
        count == 1
            ? end
            : b.add(done, b.mul(b.divide(b.sub(end, done), count), count));
    b.forLoop(done, stop, count, [&](Value row) {
      VectorRowTile(context, block, mask, row, count).emit();
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
    Value target = b.mul(outRow, shape.outPitch);
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
