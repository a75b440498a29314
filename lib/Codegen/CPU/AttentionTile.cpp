//===- AttentionTile.cpp - online softmax over one packed KV block --------===//
//
// For every few rows: S = Q K^T by the microkernel into scratch that stays in
// the first-level cache, the new row maximum, P = exp2(S - row_max), then
// O = O * exp2(old_max - new_max) + P V by the microkernel.
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
#include "prefill/Analysis/IndexArithmetic.h"
#include "prefill/Codegen/CPU/Microkernel.h"
#include "prefill/Codegen/CPU/VectorMath.h"

using namespace mlir;
using namespace mlir::prefill;

/// Rows of the largest microkernel and lanes of the widest vector of any
/// variant: scratch has one size for all.
static constexpr int64_t kMaxMicroRows = 8;
static constexpr int64_t kMaxLanes = 16;

AttentionScratch AttentionScratch::allocate(KernelBuilder &b, KernelABI &abi,
                                            const AttentionKernelShape &shape) {
  auto make = [&](Type type, int64_t count) {
    return abi.allocateScratch(type, count);
  };
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  AttentionScratch scratch;
  scratch.query = make(shape.elementType, shape.rows() * shape.depth());
  scratch.keys = make(shape.elementType, shape.blockKv * shape.depth());
  scratch.values = make(shape.elementType, shape.blockKv * shape.columns());
  scratch.accumulator = make(f32, shape.rows() * shape.columns());
  scratch.rowMax = make(f32, shape.rows());
  scratch.rowSum = make(f32, shape.rows());
  scratch.firstKey = make(i32, shape.rows());
  scratch.numKeys = make(i32, shape.rows());
  scratch.keyOffsets = make(b.getI64Type(), shape.blockKv);
  scratch.scores = make(f32, kMaxMicroRows * shape.blockKv);
  scratch.probabilities =
      shape.elementType.isF32()
          ? scratch.scores
          : make(shape.elementType, kMaxMicroRows * shape.blockKv);
  scratch.tileMax = make(f32, kMaxMicroRows * kMaxLanes);
  scratch.rescale = make(f32, kMaxMicroRows * kMaxLanes);
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
    endPanel = b.ceilDivide(clamp(end), kPanelN);
    b.ifThen(b.compare(arith::CmpIPredicate::slt, firstPanel, endPanel),
             [&] { emitProducts(); });
  }

private:
  Value loadKey(Value memref, Value row) {
    return b.toIndex(memref::LoadOp::create(b, memref, ValueRange{row}));
  }

  void emitProducts() {
    emitScores();
    b.forLoop(b.index(0), b.index(count), 1,
              [&](Value row) { emitProbabilities(row); });
    emitAccumulators();
  }

  /// Columns that one microkernel covers: few rows take the whole panel, to
  /// have enough accumulators in flight.
  int64_t microColumns() const {
    return count == 1 ? kPanelN : isa.microColumns;
  }

  void emitScores() {
    SmallVector<Value> largest(count, b.splatF32(kNegativeInfinity, lanes));
    largest = b.forLoop(
        firstPanel, endPanel, 1, largest,
        [&](Value panel, ValueRange largest) -> SmallVector<Value> {
          SmallVector<Value> next(largest);
          for (int64_t part = 0; part < kPanelN; part += microColumns())
            emitScorePart(panel, part, next);
          return next;
        });
    for (int64_t r = 0; r < count; ++r)
      storeVector(b, largest[r], scratch.tileMax, b.index(r * kMaxLanes));
  }

  void emitScorePart(Value panel, int64_t part, SmallVector<Value> &largest) {
    int64_t vectors = microColumns() / lanes;
    MicrokernelOperands operands;
    operands.elementType = shape.elementType;
    operands.a = scratch.query;
    for (int64_t r = 0; r < count; ++r)
      operands.aRowOffsets.push_back(b.mul(b.add(firstRow, r), shape.depth()));
    operands.b = scratch.keys;
    operands.bOffsets = panelVectorOffsets(
        b, isa, shape.elementType, b.mul(panel, shape.keyPanelElements()), part,
        vectors);
    operands.bStepStride = kPanelN * shape.kPackSize();
    operands.steps = b.index(shape.depth() / shape.kPackSize());
    SmallVector<Value> scores = emitMicrokernel(b, isa, operands);
    Value column = b.add(b.mul(panel, kPanelN), part);
    for (int64_t r = 0; r < count; ++r)
      for (int64_t v = 0; v < vectors; ++v) {
        Value score = scores[r * vectors + v];
        if (shape.scoreScale != 1.0)
          score = arith::MulFOp::create(b, score,
                                        b.splatF32(shape.scoreScale, lanes));
        if (mask == BlockMask::Edge)
          score = emitMask(score, b.add(firstRow, r), b.add(column, v * lanes));
        storeVector(b, score, scratch.scores,
                    b.add(column, r * shape.blockKv + v * lanes));
        largest[r] = maximum(b, score, largest[r]);
      }
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

  /// Of one row: new maximum, rescaling factor, probabilities and their sum.
  void emitProbabilities(Value row) {
    Value state = b.add(firstRow, row);
    Value oldMax = memref::LoadOp::create(b, scratch.rowMax, ValueRange{state});
    Value blockMax = reduceLanes(
        b, loadVector(b, scratch.tileMax, b.mul(row, kMaxLanes), lanes),
        [&](Value lhs, Value rhs) { return maximum(b, lhs, rhs); });
    Value newMax = maximum(b, blockMax, oldMax);
    memref::StoreOp::create(b, newMax, scratch.rowMax, ValueRange{state});
    // A row without a key so far: -inf - -inf would be NaN.
    Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, newMax,
                                       b.f32(kNegativeInfinity));
    Value shift = arith::SelectOp::create(b, none, b.f32(0.0), newMax);
    Value rescale = emitExp2(
        b, broadcast(b, arith::SubFOp::create(b, oldMax, shift), lanes));
    storeVector(b, rescale, scratch.rescale, b.mul(row, kMaxLanes));

    Value shifts = broadcast(b, shift, lanes);
    int64_t vectors = kPanelN / lanes;
    SmallVector<Value> sums(vectors, b.splatF32(0.0, lanes));
    sums = b.forLoop(
        firstPanel, endPanel, 1, sums,
        [&](Value panel, ValueRange sums) -> SmallVector<Value> {
          SmallVector<Value> next(sums);
          for (int64_t v = 0; v < vectors; ++v) {
            Value at =
                b.add(b.add(b.mul(row, shape.blockKv), b.mul(panel, kPanelN)),
                      v * lanes);
            Value p = emitExp2(
                b, arith::SubFOp::create(
                       b, loadVector(b, scratch.scores, at, lanes), shifts));
            Value rounded = emitTruncate(b, isa, p, shape.elementType);
            storeVector(b, rounded, scratch.probabilities, at);
            if (!shape.elementType.isF32())
              p = arith::ExtFOp::create(b, b.vectorF32(lanes), rounded);
            next[v] = arith::AddFOp::create(b, next[v], p);
          }
          return next;
        });
    Value sum = sums[0];
    for (int64_t v = 1; v < vectors; ++v)
      sum = arith::AddFOp::create(b, sum, sums[v]);
    sum = sumLanes(b, sum);
    Value oldSum = memref::LoadOp::create(b, scratch.rowSum, ValueRange{state});
    Value factor = vector::ExtractOp::create(b, rescale, ArrayRef<int64_t>{0});
    Value newSum = math::FmaOp::create(b, oldSum, factor, sum);
    memref::StoreOp::create(b, newSum, scratch.rowSum, ValueRange{state});
  }

  void emitAccumulators() {
    int64_t pack = shape.kPackSize();
    Value firstKey = b.mul(firstPanel, kPanelN);
    Value keys = b.mul(b.sub(endPanel, firstPanel), kPanelN);
    b.forLoop(
        b.index(0), b.index(shape.columns() / kPanelN), 1, [&](Value panel) {
          for (int64_t part = 0; part < kPanelN; part += microColumns())
            emitAccumulatorPart(panel, part, firstKey, b.divide(keys, pack));
        });
  }

  void emitAccumulatorPart(Value panel, int64_t part, Value firstKey,
                           Value steps) {
    int64_t vectors = microColumns() / lanes;
    MicrokernelOperands operands;
    operands.elementType = shape.elementType;
    operands.a = scratch.probabilities;
    operands.b = scratch.values;
    Value start = b.add(b.mul(panel, shape.valuePanelElements()),
                        b.mul(firstKey, kPanelN));
    operands.bOffsets =
        panelVectorOffsets(b, isa, shape.elementType, start, part, vectors);
    operands.bStepStride = kPanelN * shape.kPackSize();
    operands.steps = steps;
    SmallVector<Value> init, places;
    for (int64_t r = 0; r < count; ++r) {
      operands.aRowOffsets.push_back(b.add(firstKey, r * shape.blockKv));
      Value rescale =
          loadVector(b, scratch.rescale, b.index(r * kMaxLanes), lanes);
      Value row = b.add(b.mul(b.add(firstRow, r), shape.columns()),
                        b.mul(panel, kPanelN));
      for (int64_t v = 0; v < vectors; ++v) {
        places.push_back(b.add(row, part + v * lanes));
        init.push_back(arith::MulFOp::create(
            b, loadVector(b, scratch.accumulator, places.back(), lanes),
            rescale));
      }
    }
    SmallVector<Value> results = emitMicrokernel(b, isa, operands, init);
    for (auto [result, place] : llvm::zip(results, places))
      storeVector(b, result, scratch.accumulator, place);
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
      set(b.f32(0.0), scratch.rowSum);
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
  SmallVector<int64_t> counts{context.isa.microRows};
  if (context.isa.microRows > 4)
    counts.push_back(4);
  counts.push_back(1);
  for (int64_t count : counts) {
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
  b.forLoop(b.index(0), b.sub(rows.rowEnd, rows.rowBegin), 1, [&](Value row) {
    Value target =
        b.mul(b.add(rows.batchRow, row), shape.numHeads() * shape.headDimV);
    target = b.add(target, b.mul(rows.kvHead, shape.group * shape.headDimV));
    b.forLoop(b.index(0), b.index(shape.group), 1, [&](Value head) {
      Value state = b.add(b.mul(row, shape.group), head);
      Value sum =
          memref::LoadOp::create(b, context.scratch.rowSum, ValueRange{state});
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
        storeVector(b, emitTruncate(b, context.isa, value, shape.elementType),
                    out, b.add(to, at));
      });
    });
  });
}
