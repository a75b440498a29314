//===- EpilogueSinks.cpp - what an epilogue writes, and its loops ---------===//
#include "Epilogue.h"
#include "VNNIPage.h"
#include "VectorMemory.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::prefill;

static int64_t columnsOf(Value value) {
  return cast<ShapedType>(value.getType()).getDimSize(1);
}

//===----------------------------------------------------------------------===//
// Which columns of the accumulator a value comes from
//===----------------------------------------------------------------------===//

LogicalResult EpilogueEmitter::traceSpace(Value value,
                                          std::optional<ColumnSpace> &space) {
  space.reset();
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (argument.getOwner() == &body)
      space = ColumnSpace();
    return success();
  }
  Operation *op = value.getDefiningOp();
  for (Value operand : op->getOperands()) {
    auto tensor = dyn_cast<RankedTensorType>(operand.getType());
    if (!tensor || tensor.getRank() != 2 || isa<EmbedOp, SelectRowsOp>(op))
      continue;
    std::optional<ColumnSpace> from;
    if (failed(traceSpace(operand, from)))
      return failure();
    if (!from)
      continue;
    if (space && !(*space == *from))
      return op->emitOpError("mixes different columns of the accumulator; "
                             "target cpu evaluates columns one tile at a time");
    space = from;
  }
  if (!space)
    return success();
  if (auto split = dyn_cast<SplitOp>(op)) {
    if (space->granularity)
      return op->emitOpError("of a deinterleaved value cannot be in an "
                             "epilogue on target cpu");
    for (unsigned i = 0; i < cast<OpResult>(value).getResultNumber(); ++i)
      space->offset += columnsOf(split->getResult(i));
  } else if (auto deinterleave = dyn_cast<DeinterleaveOp>(op)) {
    if (space->granularity)
      return op->emitOpError("of a deinterleaved value cannot be in an "
                             "epilogue on target cpu");
    space->granularity = deinterleave.getGranularity();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Collecting
//===----------------------------------------------------------------------===//

LogicalResult EpilogueEmitter::verifyNode(Operation *op) {
  if (!isa<AddOp, BiasAddOp, ScaleOp, RowRMSScaleOp, RMSNormOp, GatedActOp,
           SplitOp, DeinterleaveOp, EmbedOp, SelectRowsOp, RopeOp, KVAppendOp,
           RowSumsqOp>(op))
    return op->emitOpError("has no lowering in an epilogue on target cpu");
  if (auto deinterleave = dyn_cast<DeinterleaveOp>(op))
    if (int64_t(deinterleave.getGranularity()) % cpu.lanes != 0)
      return op->emitOpError("has granularity = ")
             << deinterleave.getGranularity()
             << "; target cpu needs a multiple of " << cpu.lanes;
  auto requireArgument = [&](Value value, StringRef name) -> LogicalResult {
    auto argument = dyn_cast<BlockArgument>(value);
    if (argument && argument.getOwner() != &body)
      return success();
    return op->emitOpError("computes its ")
           << name << " in the same kernel; target cpu reads it from memory";
  };
  if (auto select = dyn_cast<SelectRowsOp>(op))
    return requireArgument(select.getInput(), "input");
  if (auto scale = dyn_cast<RowRMSScaleOp>(op))
    return requireArgument(scale.getSumsq(), "sumsq");
  if (auto norm = dyn_cast<RMSNormOp>(op); norm && !isHeadNode(op)) {
    std::optional<ColumnSpace> space;
    if (failed(traceSpace(norm.getInput(), space)))
      return failure();
    if (space)
      return op->emitOpError("over whole rows cannot be in a gemm's epilogue; "
                             "a tile holds only a part of the row");
  }
  return success();
}

LogicalResult EpilogueEmitter::addSink(Sink sink, Operation *op) {
  sink.columns = columnsOf(sink.value);
  std::optional<ColumnSpace> space;
  if (failed(traceSpace(sink.value, space)))
    return failure();
  if (isa<GemmOp>(body.getParentOp()) && !space)
    return op->emitOpError("writes a value that doesn't depend on the "
                           "accumulator; it belongs in a rowwise");
  if (space)
    sink.space = *space;
  sinks.push_back(sink);
  return success();
}

LogicalResult EpilogueEmitter::collectSinks() {
  for (Operation &op : body.without_terminator())
    if (failed(verifyNode(&op)))
      return failure();
  Operation *yield = body.getTerminator();
  unsigned nextOut = 0;
  for (Value value : yield->getOperands()) {
    if (auto append = value.getDefiningOp<KVAppendOp>()) {
      if (failed(addSink(
              {Sink::Kind::Key, append.getKey(), append.getCache(), 0, {}},
              append)) ||
          failed(addSink(
              {Sink::Kind::Value, append.getValue(), append.getCache(), 0, {}},
              append)))
        return failure();
      continue;
    }
    if (nextOut >= outs.size())
      return yield->emitOpError("yields more tensors than there are buffers");
    Value target = outs[nextOut++];
    if (auto sumsq = value.getDefiningOp<RowSumsqOp>()) {
      if (failed(addSink(
              {Sink::Kind::SumOfSquares, sumsq.getInput(), target, 0, {}},
              sumsq)))
        return failure();
      continue;
    }
    if (failed(addSink({Sink::Kind::Buffer, value, target, 0, {}}, yield)))
      return failure();
  }
  return success();
}

SmallVector<SmallVector<Sink>> EpilogueEmitter::sinkGroups() const {
  SmallVector<SmallVector<Sink>> groups;
  for (const Sink &sink : sinks) {
    auto group = llvm::find_if(groups, [&](const SmallVector<Sink> &group) {
      return group.front().space == sink.space &&
             group.front().columns == sink.columns;
    });
    if (group == groups.end())
      groups.push_back({sink});
    else
      group->push_back(sink);
  }
  return groups;
}

SmallVector<Operation *>
EpilogueEmitter::ancestors(ArrayRef<Sink> sinks) const {
  DenseSet<Operation *> needed;
  SmallVector<Value> work;
  for (const Sink &sink : sinks)
    work.push_back(sink.value);
  while (!work.empty()) {
    Operation *op = work.pop_back_val().getDefiningOp();
    if (op && needed.insert(op).second)
      llvm::append_range(work, op->getOperands());
  }
  SmallVector<Operation *> ordered;
  for (Operation &op : body)
    if (needed.contains(&op))
      ordered.push_back(&op);
  return ordered;
}

LogicalResult EpilogueEmitter::verifyTiles(ArrayRef<Sink> sinks,
                                           int64_t width) {
  for (Operation *op : ancestors(sinks))
    if (isHeadNode(op) && failed(verifyHeadNode(op, width)))
      return failure();
  for (const Sink &sink : sinks) {
    if (sink.kind != Sink::Kind::Key && sink.kind != Sink::Kind::Value)
      continue;
    int64_t headDim = cacheHeadDim(sink);
    if (width % headDim != 0)
      return sink.value.getDefiningOp()
                 ? sink.value.getDefiningOp()->emitOpError(
                       "goes to a cache of head_dim = ")
                       << headDim << " in a tile of block_n = " << width
                       << " columns; block_n must be a multiple of it"
                 : body.getParentOp()->emitOpError(
                       "writes a cache of head_dim = ")
                       << headDim << " with block_n = " << width
                       << "; block_n must be a multiple of it";
  }
  return success();
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
  materialized.clear();
  for (Operation *op : ancestors(sinks))
    computeRowScalar(op);
  for (const Sink &sink : sinks)
    if (sink.kind == Sink::Kind::Key || sink.kind == Sink::Kind::Value)
      computeSlot(sink.target);
}

int64_t EpilogueEmitter::cacheHeadDim(const Sink &sink) const {
  auto cache = cast<KVCacheType>(sink.target.getType());
  return sink.kind == Sink::Kind::Key ? cache.getHeadDimQk()
                                      : cache.getHeadDimV();
}

void EpilogueEmitter::emitTile(const ColumnTile &tile, ArrayRef<Sink> sinks) {
  materialized.clear();
  for (Operation *op : ancestors(sinks))
    if (isHeadNode(op))
      materialize(op, tile);

  int64_t headDim = 0;
  SmallVector<Sink> sums, stores;
  for (const Sink &sink : sinks) {
    if (sink.kind == Sink::Kind::SumOfSquares) {
      sums.push_back(sink);
      continue;
    }
    stores.push_back(sink);
    if (sink.kind != Sink::Kind::Buffer)
      headDim = cacheHeadDim(sink);
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
                     store(sink, evaluate(sink.value, at), at);
                   return next;
                 });
  for (auto [sink, sum] : llvm::zip(sums, squares))
    memref::StoreOp::create(b, sumLanes(b, sum), abi.view(sink.target),
                            ValueRange{row, tile.index});
}

void EpilogueEmitter::store(const Sink &sink, Value vector,
                            const Position &at) {
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
      int64_t count =
          at.mask ? cacheHeadDim(sink) % cpu.lanes : int64_t(cpu.lanes);
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
