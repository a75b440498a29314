//===- GemmAmx.cpp - a gemm's panel on AMX tiles ------------------------===//
#include "GemmAmx.h"
#include "AmxTiles.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/TileTable.h"

using namespace mlir;
using namespace mlir::prefill;

static constexpr int64_t kPair = 2; // bf16 of one step of a panel
static constexpr int64_t kStepElements = kPanelN * kPair;
static constexpr int64_t kLineElements = kCacheLineBytes / 2;
static constexpr int64_t kStepsOfTile = kAmxK / kPair;
static constexpr int64_t kColumnTiles = kPanelN / kAmxColumns;
/// Lines of the next panel that a step asks for: all of it where 256 rows share
/// it, and at most so many where fewer do; the processor's own prefetcher sees
/// to the rest.
static constexpr int64_t kPrefetches = 4, kMostPrefetches = 8;
/// Lines of the weight that a step reads; a single microkernel asks for all.
static constexpr int64_t kLinesOfStep =
    kStepsOfTile * kStepElements / kLineElements;

bool prefill::gemmUsesAmx(const CpuIsa &isa, Type elementType, int64_t k) {
  return isa.hasTiles && elementType.isBF16() && k % kAmxK == 0;
}

GemmAmxRows::GemmAmxRows(KernelBuilder &b, KernelABI &abi, int64_t k)
    : b(b), k(k) {
  tail = abi.allocateScratch(b.getBF16Type(), kAmxRows * k);
}

void GemmAmxRows::begin(Value input, int64_t inputPitch, Value firstRow,
                        Value rows) {
  this->input = input;
  this->inputPitch = inputPitch;
  this->firstRow = firstRow;
  this->rows = rows;
  Value rest = b.remainder(rows, kAmxRows);
  Value first = b.sub(b.add(firstRow, rows), rest);
  auto type = VectorType::get({kAmxK}, b.getBF16Type());
  b.forLoop(b.index(0), rest, 1, [&](Value row) {
    Value from = b.mul(b.add(first, row), inputPitch);
    Value to = b.mul(row, kAmxK);
    b.forLoop(b.index(0), b.index(k), kAmxK, [&](Value at) {
      Value values = vector::LoadOp::create(b, type, input, b.add(from, at));
      vector::StoreOp::create(b, values, tail, b.add(to, b.mul(at, kAmxRows)));
    });
  });
}

GemmAmxRows::Left GemmAmxRows::inPlace(const Panel &panel, Value row) {
  Value firstK = b.mul(panel.firstStep, kPair);
  return {input, b.add(b.mul(b.add(firstRow, row), inputPitch), firstK),
          inputPitch, kAmxK};
}

GemmAmxRows::Left GemmAmxRows::inTail(const Panel &panel) {
  return {tail, b.mul(panel.firstStep, kPair * kAmxRows), kAmxK,
          kAmxRows * kAmxK};
}

void GemmAmxRows::emitPanel(const Panel &panel) {
  constexpr int64_t tall = 2 * kAmxRows;
  Value rest = b.remainder(rows, tall);
  Value end = b.sub(rows, rest);
  b.forLoop(b.index(0), end, tall, [&](Value row) {
    emitTiles(panel, row, 2, inPlace(panel, row), kMostPrefetches);
  });
  b.ifThen(b.compare(arith::CmpIPredicate::uge, rest, b.index(kAmxRows)), [&] {
    emitTiles(panel, end, 1, inPlace(panel, end), kMostPrefetches);
  });
  Value tailRows = b.remainder(rest, kAmxRows);
  b.ifThen(b.compare(arith::CmpIPredicate::ne, tailRows, b.index(0)), [&] {
    emitTiles(panel, b.sub(rows, tailRows), 1, inTail(panel), kMostPrefetches);
  });
}

void GemmAmxRows::emitPanelOfFewRows(const Panel &panel) {
  // Sixteen rows have no copy.
  Value whole = b.compare(arith::CmpIPredicate::eq, rows, b.index(kAmxRows));
  auto emit = [&](Left left) {
    emitTiles(panel, b.index(0), 1, left, kLinesOfStep);
  };
  b.ifThenElse(
      whole, [&] { emit(inPlace(panel, b.index(0))); },
      [&] { emit(inTail(panel)); });
}

void GemmAmxRows::emitTiles(const Panel &panel, Value row, int64_t rowTiles,
                            Left left, int64_t prefetches) {
  auto beforeRows = [&] {
    b.forLoop(row, b.min(b.add(row, rowTiles * kAmxRows), rows), 1,
              panel.beforeRow);
  };
  if (panel.isOnlyPass)
    beforeRows();
  else
    b.ifThen(b.compare(arith::CmpIPredicate::eq,
                       b.add(panel.firstStep, panel.steps), b.index(k / kPair)),
             beforeRows);
  AmxTiles tiles(b);
  Value pitch = b.index(panel.pitch);
  auto place = [&](int64_t r, int64_t c) {
    Value first = b.add(panel.target, b.mul(row, panel.pitch));
    return b.add(first, r * kAmxRows * panel.pitch + c * kAmxColumns);
  };
  auto emit = [&](bool isFirst) {
    SmallVector<Value> sums;
    for (int64_t r = 0; r < rowTiles; ++r)
      for (int64_t c = 0; c < kColumnTiles; ++c)
        sums.push_back(
            isFirst ? tiles.zero()
                    : tiles.load(panel.accumulators, place(r, c), pitch));
    sums = multiply(panel, left, row, sums, rowTiles, prefetches);
    for (int64_t r = 0; r < rowTiles; ++r)
      for (int64_t c = 0; c < kColumnTiles; ++c)
        tiles.store(sums[r * kColumnTiles + c], panel.accumulators, place(r, c),
                    pitch);
  };
  if (panel.isOnlyPass)
    return emit(true);
  b.ifThenElse(
      b.compare(arith::CmpIPredicate::eq, panel.firstStep, b.index(0)),
      [&] { emit(true); }, [&] { emit(false); });
}

SmallVector<Value> GemmAmxRows::multiply(const Panel &panel, Left left,
                                         Value row, SmallVector<Value> sums,
                                         int64_t rowTiles, int64_t prefetches) {
  AmxTiles tiles(b);
  constexpr int64_t tall = 2 * kAmxRows;
  // This microkernel's share of the next panel, in whole lines of each step.
  Value shares = b.ceilDivide(rows, tall);
  Value tileSteps = b.divide(panel.steps, kStepsOfTile);
  Value lines = b.divide(b.add(shares, kLinesOfStep - 1), shares);
  Value firstLine = b.mul(b.mul(b.divide(row, tall), tileSteps), lines);
  Value next = b.add(panel.next, b.mul(firstLine, kLineElements));
  Value columnStride = b.index(kStepElements), stride = b.index(left.stride);
  return b.forLoop(
      b.index(0), tileSteps, 1, sums,
      [&](Value step, ValueRange carried) -> SmallVector<Value> {
        SmallVector<Value> results(carried);
        Value line = b.add(next, b.mul(b.mul(step, lines), kLineElements));
        auto prefetch = [&](int64_t from, int64_t to) {
          for (int64_t i = from; i < to; ++i)
            memref::PrefetchOp::create(
                b, panel.weight, ValueRange{b.add(line, i * kLineElements)},
                /*isWrite=*/false, /*localityHint=*/2, /*isDataCache=*/true);
        };
        prefetch(0, kPrefetches);
        b.ifThen(
            b.compare(arith::CmpIPredicate::ugt, lines, b.index(kPrefetches)),
            [&] { prefetch(kPrefetches, prefetches); });
        Value at = b.add(left.offset, b.mul(step, left.step));
        Value from =
            b.add(panel.start, b.mul(step, kStepsOfTile * kStepElements));
        SmallVector<Value> columns;
        for (int64_t c = 0; c < kColumnTiles; ++c)
          columns.push_back(tiles.load(panel.weight,
                                       b.add(from, c * kAmxColumns * kPair),
                                       columnStride));
        for (int64_t r = 0; r < rowTiles; ++r) {
          // Rows pass by; the panel's part stays.
          Value rowsTile = tiles.loadStreamed(
              left.memref, b.add(at, r * kAmxRows * left.stride), stride);
          for (int64_t c = 0; c < kColumnTiles; ++c) {
            Value &sum = results[r * kColumnTiles + c];
            sum = tiles.multiplyAdd(sum, rowsTile, columns[c]);
          }
        }
        return results;
      });
}
