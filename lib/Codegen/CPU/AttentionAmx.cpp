//===- AttentionAmx.cpp - attention's products on AMX tiles ---------------===//
//
// Sixteen rows at a time, whatever their number: tdpbf16ps adds up in another
// order than vdpbf16ps, and a row's bits must not depend on its neighbours.
// Accumulators are not within reach of vector instructions, so the scores pass
// through scratch once more than with vectors: for their maxima and masks.
//
// A panel of values is multiplied whole, with zeros for keys that a row does
// not see, so values in the cache have to be finite.
//
//===----------------------------------------------------------------------===//
#include "AmxTiles.h"
#include "AttentionRowTile.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::prefill;

/// Elements of a step of a panel, and of one panel of values.
static constexpr int64_t kStepElements = kPanelN * 2;
static constexpr int64_t kValuePanelElements = kPanelN * kPanelN;
static constexpr int64_t kPanelTiles = kPanelN / kAmxColumns;
/// Tiles of sums beside which the operands still fit.
static constexpr int64_t kSumTiles = 4;
/// Tiles of query rows that stay in registers beside two of sums and two of
/// keys.
static constexpr int64_t kQueryTiles = 4;

bool prefill::attentionUsesAmx(const CpuIsa &isa,
                               const AttentionKernelShape &shape) {
  return isa.hasTiles && shape.elementType.isBF16() &&
         shape.depth() % kAmxK == 0;
}

namespace {

class AmxRowTile : public RowTileEmitter {
public:
  AmxRowTile(AttentionContext &context, const AttentionBlock &block,
             BlockMask mask, Value firstRow, Value rows)
      : RowTileEmitter(context, block, mask, firstRow, kAmxRows, rows),
        tiles(context.b) {}

private:
  SmallVector<Value> emitScores() override {
    emitScoreTiles();
    b.forLoop(b.index(0), rows, 1, [&](Value row) { emitRowScores(row); });
    SmallVector<Value> largest;
    for (int64_t r = 0; r < count; ++r)
      largest.push_back(
          loadVector(b, scratch.largest, b.index(r * kMaxLanes), lanes));
    return largest;
  }

  void emitScoreTiles() {
    int64_t depthTiles = shape.depth() / kAmxK;
    Value firstQuery = b.mul(firstRow, shape.depth());
    auto loadQuery = [&](int64_t k) {
      return tiles.load(scratch.query, b.add(firstQuery, k * kAmxK),
                        b.index(shape.depth()));
    };
    SmallVector<Value> query;
    for (int64_t k = 0; depthTiles <= kQueryTiles && k < depthTiles; ++k)
      query.push_back(loadQuery(k));
    Value keys = shape.readsPages() ? block.cache.key : scratch.keys;
    b.forLoop(firstPanel, endPanel, 1, [&](Value panel) {
      Value start = shape.readsPages() ? pageOffset(panel)
                                       : b.mul(panel, shape.keyPanelElements());
      SmallVector<Value> sums;
      for (int64_t c = 0; c < kPanelTiles; ++c)
        sums.push_back(tiles.zero());
      for (int64_t k = 0; k < depthTiles; ++k) {
        Value left = query.empty() ? loadQuery(k) : query[k];
        for (int64_t c = 0; c < kPanelTiles; ++c)
          sums[c] = tiles.multiplyAdd(
              sums[c], left,
              tiles.load(keys,
                         b.add(start, k * kAmxK / 2 * kStepElements +
                                          c * kAmxColumns * 2),
                         b.index(kStepElements)));
      }
      if (shape.readsPages())
        prefetchNextPage(keys, panel, shape.depth());
      for (int64_t c = 0; c < kPanelTiles; ++c)
        tiles.store(sums[c], scratch.scores,
                    b.add(b.mul(panel, kPanelN), c * kAmxColumns),
                    b.index(shape.blockKv));
    });
  }

  /// Short queries are as fast as memory; with more rows a page is in the cache
  /// when it is needed again. A channel of a page's 32 tokens is a line.
  void prefetchNextPage(Value memref, Value panel, int64_t channels) {
    b.ifThen(b.compare(arith::CmpIPredicate::ult, rows, b.index(count)), [&] {
      Value next = pageOffset(b.add(panel, 1));
      b.forLoop(
          b.index(0), b.index(channels * kPanelN), kPanelN, [&](Value at) {
            memref::PrefetchOp::create(b, memref, ValueRange{b.add(next, at)},
                                       /*isWrite=*/false, /*localityHint=*/2,
                                       /*isDataCache=*/true);
          });
    });
  }

  /// Of one row: scale, mask, and the largest scores by lane.
  void emitRowScores(Value row) {
    SmallVector<Value> largest(kPanelN / lanes,
                               b.splatF32(kNegativeInfinity, lanes));
    auto run = [&](Value begin, Value end, bool masked) {
      largest = b.forLoop(
          begin, end, 1, largest,
          [&](Value panel, ValueRange carried) -> SmallVector<Value> {
            SmallVector<Value> next(carried);
            for (size_t v = 0; v < next.size(); ++v)
              next[v] = maximum(
                  b,
                  emitScore(row, b.add(b.mul(panel, kPanelN), v * lanes),
                            masked),
                  next[v]);
            return next;
          });
    };
    if (mask == BlockMask::Edge) {
      auto inside = [&](Value panel, Value begin) {
        return b.max(b.min(panel, endPanel), begin);
      };
      Value begin = inside(fullBegin, firstPanel);
      Value end = inside(fullEnd, begin);
      run(firstPanel, begin, true);
      run(begin, end, false);
      run(end, endPanel, true);
    } else {
      run(firstPanel, endPanel, false);
    }
    Value all = largest[0];
    for (Value other : ArrayRef(largest).drop_front())
      all = maximum(b, all, other);
    storeVector(b, all, scratch.largest, b.mul(row, kMaxLanes));
  }

  Value emitScore(Value row, Value column, bool masked) {
    Value place = b.add(b.mul(row, shape.blockKv), column);
    Value score = loadVector(b, scratch.scores, place, lanes);
    if (shape.scoreScale != 1.0)
      score =
          arith::MulFOp::create(b, score, b.splatF32(shape.scoreScale, lanes));
    if (masked)
      score = emitMask(score, b.add(firstRow, row), column);
    if (masked || shape.scoreScale != 1.0)
      storeVector(b, score, scratch.scores, place);
    return score;
  }

  void emitAccumulators() override {
    emitRescale();
    int64_t numTiles = shape.columns() / kAmxColumns;
    for (int64_t first = 0; first < numTiles; first += kSumTiles)
      emitValueTiles(first, std::min(kSumTiles, numTiles - first));
  }

  Value accumulatorOf(Value row) {
    return b.mul(b.add(firstRow, row), shape.columns());
  }

  /// A factor of 1 changes nothing, so that a block in which no row has a new
  /// maximum goes without.
  void emitRescale() {
    Value factors = loadVector(b, scratch.rescale, b.index(0), count);
    Value changes = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, factors,
                                          b.splatF32(1.0, count));
    changes = arith::AndIOp::create(
        b, changes,
        vector::CreateMaskOp::create(b, cast<VectorType>(changes.getType()),
                                     ValueRange{rows}));
    Value bits = vector::ExtractOp::create(
        b,
        vector::BitCastOp::create(b, VectorType::get({1}, b.getI16Type()),
                                  changes),
        ArrayRef<int64_t>{0});
    Value none = arith::ConstantOp::create(b, b.getI16IntegerAttr(0));
    b.ifThen(b.compare(arith::CmpIPredicate::ne, bits, none), [&] {
      b.forLoop(b.index(0), rows, 1, [&](Value row) {
        Value factor = loadBroadcast(scratch.rescale, row);
        Value start = accumulatorOf(row);
        for (int64_t at = 0; at < shape.columns(); at += lanes) {
          Value place = b.add(start, at);
          storeVector(
              b,
              arith::MulFOp::create(
                  b, loadVector(b, scratch.accumulator, place, lanes), factor),
              scratch.accumulator, place);
        }
      });
    });
  }

  /// Tiles [first, first + number) of the accumulator's columns.
  void emitValueTiles(int64_t first, int64_t number) {
    Value start = b.add(accumulatorOf(b.index(0)), first * kAmxColumns);
    Value pitch = b.index(shape.columns());
    SmallVector<Value> sums;
    for (int64_t t = 0; t < number; ++t)
      sums.push_back(tiles.load(scratch.accumulator,
                                b.add(start, t * kAmxColumns), pitch));
    forEachRunOfValues([&](Value begin, Value end, Value values,
                           llvm::function_ref<Value(Value)> panelStart) {
      sums = b.forLoop(
          begin, end, 1, sums,
          [&](Value panel, ValueRange carried) -> SmallVector<Value> {
            SmallVector<Value> next(carried);
            Value left =
                tiles.load(scratch.probabilities, b.mul(panel, kPanelN),
                           b.index(shape.blockKv));
            Value from = panelStart(panel);
            for (int64_t t = 0; t < number; ++t) {
              int64_t tile = first + t;
              Value right = tiles.load(
                  values,
                  b.add(from, tile / kPanelTiles * kValuePanelElements +
                                  tile % kPanelTiles * kAmxColumns * 2),
                  b.index(kStepElements));
              next[t] = tiles.multiplyAdd(next[t], left, right);
            }
            if (shape.readsPages() && first == 0 && values == block.cache.value)
              prefetchNextPage(values, panel, shape.columns());
            return next;
          });
    });
    for (int64_t t = 0; t < number; ++t)
      tiles.store(sums[t], scratch.accumulator, b.add(start, t * kAmxColumns),
                  pitch);
  }

  AmxTiles tiles;
};

} // namespace

void prefill::emitBlockOnAmx(AttentionContext &context,
                             const AttentionRows &rows,
                             const AttentionBlock &block, BlockMask mask) {
  KernelBuilder &b = context.b;
  Value end = b.mul(rows.count(b), context.shape.group);
  b.forLoop(b.index(0), end, kAmxRows, [&](Value row) {
    AmxRowTile(context, block, mask, row, b.min(b.sub(end, row), kAmxRows))
        .emit();
  });
}
