//===- EpilogueSinks.cpp - what an epilogue writes, and its loops ---------===//
#include "Epilogue.h"
#include "Int8Rows.h"
#include "VNNIPage.h"
#include "VectorMemory.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/VectorMath.h"

using namespace mlir;
using namespace mlir::prefill;

static int64_t columnsOf(Value value) {
  return cast<ShapedType>(value.getType()).getDimSize(1);
}

LogicalResult EpilogueEmitter::collectSinks() {
  for (auto deinterleave : body.getOps<DeinterleaveOp>())
    if (int64_t(deinterleave.getGranularity()) % cpu.lanes != 0)
      return deinterleave.emitOpError("has granularity = ")
             << deinterleave.getGranularity()
             << "; target cpu needs a multiple of " << cpu.lanes;
  return graph.collect();
}

//===----------------------------------------------------------------------===//
// Rows and tiles
//===----------------------------------------------------------------------===//

void EpilogueEmitter::prefetchAddends(Value row, Value column) {
  body.walk([&](AddOp add) {
    for (Value addend : add.getOperands()) {
      auto argument = dyn_cast<BlockArgument>(addend);
      if (!argument || argument.getOwner() == &body ||
          columnsOf(addend) != columnsOf(body.getArgument(0)))
        continue;
      constexpr int64_t lineBits = 64 * 8;
      int64_t bits =
          cast<ShapedType>(addend.getType()).getElementTypeBitWidth();
      for (int64_t at = 0; at < kPanelN; at += lineBits / bits)
        memref::PrefetchOp::create(
            b, abi.view(addend), ValueRange{row, b.add(column, at)},
            /*isWrite=*/false, /*localityHint=*/2, /*isDataCache=*/true);
    }
  });
}

void EpilogueEmitter::beginRow(Value current, ArrayRef<Sink> sinks) {
  row = current;
  rowScalars.clear();
  slots.clear();
  quantizations.clear();
  materialized.clear();
  for (Operation *op : graph.ancestors(sinks))
    computeRowScalar(op);
  for (const Sink &sink : sinks) {
    if (sink.kind == Sink::Kind::Key || sink.kind == Sink::Kind::Value)
      computeSlot(sink.target);
    if (auto quantize = sink.value.getDefiningOp<QuantizeRowsOp>())
      computeQuantization(quantize);
    if (sink.kind == Sink::Kind::RowScale)
      memref::StoreOp::create(
          b, quantizations.lookup(sink.value.getDefiningOp()).scale,
          abi.view(sink.target), ValueRange{row, b.index(0)});
  }
}

void EpilogueEmitter::emitTile(const ColumnTile &tile, ArrayRef<Sink> sinks) {
  materialized.clear();
  for (Operation *op : graph.ancestors(sinks))
    if (EpilogueGraph::isHeadNode(op))
      materialize(op, tile);

  int64_t headDim = 0;
  SmallVector<Sink> sums, stores;
  for (const Sink &sink : sinks) {
    if (sink.kind == Sink::Kind::RowScale)
      continue; // stored when the row began
    if (sink.kind == Sink::Kind::SumOfSquares) {
      sums.push_back(sink);
      continue;
    }
    stores.push_back(sink);
    if (sink.kind == Sink::Kind::Key || sink.kind == Sink::Kind::Value)
      headDim = EpilogueGraph::cacheHeadDim(sink);
  }
  Value zero = b.splatF32(0.0, cpu.lanes);
  SmallVector<Value> squares =
      forColumns(tile, headDim, SmallVector<Value>(sums.size(), zero),
                 [&](const Position &at, ValueRange carried) {
                   SmallVector<Value> next;
                   for (auto [sink, sum] : llvm::zip(sums, carried)) {
                     Value x = evaluate(sink.value, at);
                     if (at.mask)
                       x = arith::SelectOp::create(b, at.mask, x, zero);
                     next.push_back(vector::FMAOp::create(b, x, x, sum));
                   }
                   for (const Sink &sink : stores)
                     store(sink, at);
                   return next;
                 });
  for (auto [sink, sum] : llvm::zip(sums, squares))
    memref::StoreOp::create(b, sumLanes(b, sum), abi.view(sink.target),
                            ValueRange{row, tile.index});
}

void EpilogueEmitter::store(const Sink &sink, const Position &at) {
  if (sink.kind == Sink::Kind::Quantized) {
    auto quantize = sink.value.getDefiningOp<QuantizeRowsOp>();
    Value scaled = arith::MulFOp::create(
        b, evaluate(quantize.getInput(), at),
        broadcast(quantizations.lookup(quantize).inverse));
    storeInt8Columns(b, cpu, emitNearestInteger(b, scaled, int8RowBias(cpu)),
                     abi.view(sink.target), {row, at.column}, at.mask);
    return;
  }
  Value vector = evaluate(sink.value, at);
  if (sink.kind == Sink::Kind::Buffer) {
    storeColumns(b, cpu, vector, abi.view(sink.target), {row, at.column},
                 at.mask);
    return;
  }
  Slot slot = slots.lookup(sink.target);
  CacheView cache = abi.cache(sink.target);
  b.ifThen(slot.isValid, [&] {
    Value head = cache.headOffset(b, slot.offset, at.head);
    if (cache.type.getLayout() == KVLayout::PagedVNNI) {
      VNNIToken token{head, b.remainder(slot.index, kPanelN)};
      int64_t count = at.mask ? EpilogueGraph::cacheHeadDim(sink) % cpu.lanes
                              : int64_t(cpu.lanes);
      if (sink.kind == Sink::Kind::Key)
        storeVNNIKey(b, cpu, vector, cache.key, token, at.headColumn, count);
      else
        storeVNNIValue(b, cpu, vector, cache.value, token, at.headColumn);
      return;
    }
    Value offset = b.add(head, at.headColumn);
    storeColumns(b, cpu, vector,
                 sink.kind == Sink::Kind::Key ? cache.key : cache.value, offset,
                 at.mask);
  });
}

//===----------------------------------------------------------------------===//
// Loops over columns
//===----------------------------------------------------------------------===//

/// Lanes below `count`, for a count between 0 and the lane count.
Value EpilogueEmitter::maskOf(Value count) {
  return vector::CreateMaskOp::create(
      b, VectorType::get({cpu.lanes}, b.getI1Type()), count);
}

SmallVector<Value> EpilogueEmitter::forRange(Value first, Value width,
                                             int64_t staticWidth,
                                             ValueRange init, ColumnBody body) {
  auto call = [&](Value offset, Value mask, ValueRange carried) {
    // What was evaluated elsewhere doesn't dominate this place.
    evaluated.clear();
    Position at;
    at.column = b.add(first, offset);
    at.mask = mask;
    at.headColumn = offset;
    SmallVector<Value> next = body(at, carried);
    evaluated.clear();
    return next;
  };
  bool ragged = staticWidth == ShapedType::kDynamic;
  Value whole = ragged ? b.mul(b.divide(width, cpu.lanes), cpu.lanes)
                       : b.index(staticWidth / cpu.lanes * cpu.lanes);
  SmallVector<Value> carried(init);
  if (ragged || staticWidth >= cpu.lanes)
    carried = b.forLoop(b.index(0), whole, cpu.lanes, carried,
                        [&](Value offset, ValueRange values) {
                          return call(offset, {}, values);
                        });
  if (!ragged && staticWidth % cpu.lanes == 0)
    return carried;
  Value rest = b.sub(width, whole);
  if (!ragged)
    return call(whole, maskOf(rest), carried);
  auto branch =
      scf::IfOp::create(b, ValueRange(carried).getTypes(),
                        b.compare(arith::CmpIPredicate::sgt, rest, b.index(0)),
                        /*addThenBlock=*/true, /*addElseBlock=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(branch.thenBlock());
    SmallVector<Value> next = call(whole, maskOf(rest), carried);
    scf::YieldOp::create(b, next);
    b.setInsertionPointToEnd(branch.elseBlock());
    scf::YieldOp::create(b, carried);
  }
  return SmallVector<Value>(branch.getResults());
}

SmallVector<Value> EpilogueEmitter::forColumns(const ColumnTile &tile,
                                               int64_t headDim, ValueRange init,
                                               ColumnBody body) {
  bool ragged = tile.limit % tile.width != 0;
  Value width = b.index(tile.width);
  if (ragged)
    width =
        b.max(b.min(width, b.sub(b.index(tile.limit), tile.first)), b.index(0));
  if (headDim == 0)
    return forRange(tile.first, width,
                    ragged ? ShapedType::kDynamic : tile.width, init, body);
  // Head by head: a tile holds whole heads, so that no head is cut short.
  Value firstHead = b.divide(tile.first, headDim);
  return b.forLoop(b.index(0), b.divide(width, headDim), 1, init,
                   [&](Value h, ValueRange carried) {
                     Value first = b.add(tile.first, b.mul(h, headDim));
                     return forRange(
                         first, b.index(headDim), headDim, carried,
                         [&](const Position &at, ValueRange values) {
                           Position inHead = at;
                           inHead.head = b.add(firstHead, h);
                           return body(inHead, values);
                         });
                   });
}
