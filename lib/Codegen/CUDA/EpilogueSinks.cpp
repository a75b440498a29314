//===- EpilogueSinks.cpp - what an epilogue writes, tile by tile ----------===//
#include "Epilogue.h"
#include "prefill/Codegen/CUDA/ChipTable.h"

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::cuda;

using Kind = EpilogueSink::Kind;

LaneMap::LaneMap(CudaBuilder &b, int64_t chunks, Value lane)
    : chunks(chunks), rowsPerWarp(kWarpThreads / chunks), lane(lane) {
  row = b.divide(lane, chunks);
  chunk = b.remainder(lane, chunks);
  firstLane = b.sub(lane, chunk);
}

//===----------------------------------------------------------------------===//
// What can be emitted
//===----------------------------------------------------------------------===//

/// Offsets and sizes of values are whole chunks, so that a chunk never comes
/// from two places.
static LogicalResult verifyChunks(Operation *op) {
  if (auto split = dyn_cast<SplitOp>(op)) {
    for (Value part : split.getResults())
      if (int64_t columns = cast<ShapedType>(part.getType()).getDimSize(1);
          columns % kChunkColumns != 0)
        return op->emitOpError("has a part of ")
               << columns << " columns; target cuda needs a multiple of "
               << kChunkColumns;
  } else if (auto deinterleave = dyn_cast<DeinterleaveOp>(op)) {
    if (int64_t(deinterleave.getGranularity()) % kChunkColumns != 0)
      return op->emitOpError("has granularity = ")
             << deinterleave.getGranularity()
             << "; target cuda needs a multiple of " << kChunkColumns;
  } else if (auto combine = dyn_cast<CombineSplitsOp>(op)) {
    int64_t heads = cast<ShapedType>(combine.getLse().getType()).getDimSize(1) /
                    combine.getNumSplits();
    int64_t columns = cast<ShapedType>(combine.getType()).getDimSize(1);
    if (columns / heads % kChunkColumns != 0)
      return op->emitOpError("has head_dim = ")
             << columns / heads << "; target cuda needs a multiple of "
             << kChunkColumns;
  } else if (EpilogueGraph::isHeadNode(op)) {
    int64_t headDim = EpilogueGraph::headDimOf(op);
    if (headDim % kChunkColumns != 0 || headDim > kWarpThreads * kChunkColumns)
      return op->emitOpError("has head_dim = ")
             << headDim << "; target cuda needs a multiple of " << kChunkColumns
             << " up to " << kWarpThreads * kChunkColumns;
  }
  for (Type type : op->getOperandTypes())
    if (auto cache = dyn_cast<KVCacheType>(type)) {
      for (int64_t headDim : {cache.getHeadDimQk(), cache.getHeadDimV()})
        if (headDim % kChunkColumns != 0)
          return op->emitOpError("has a cache of head_dim = ")
                 << headDim << "; target cuda needs a multiple of "
                 << kChunkColumns;
    } else if (auto tensor = dyn_cast<RankedTensorType>(type)) {
      Type element = tensor.getElementType();
      if (!element.isF32() && !element.isF16() && !element.isBF16())
        return op->emitOpError("has an operand of type ")
               << type << "; target cuda has kernels for f32, bf16 and f16";
    }
  return success();
}

LogicalResult EpilogueEmitter::collect() {
  if (failed(graph.collect()))
    return failure();
  for (Operation &op : body.without_terminator())
    if (failed(verifyChunks(&op)))
      return failure();
  return success();
}

LogicalResult EpilogueEmitter::verifyTiles(ArrayRef<EpilogueSink> sinks,
                                           int64_t width) {
  if (width < kChunkColumns || width % kChunkColumns != 0 ||
      width > kWarpThreads * kChunkColumns)
    return body.getParentOp()->emitOpError("has tiles of ")
           << width << " columns; target cuda needs a multiple of "
           << kChunkColumns << " up to " << kWarpThreads * kChunkColumns;
  return graph.verifyTiles(sinks, width);
}

//===----------------------------------------------------------------------===//
// Rows and tiles
//===----------------------------------------------------------------------===//

void EpilogueEmitter::beginRow(const Row &current, const LaneMap &map,
                               ArrayRef<EpilogueSink> sinks) {
  row = current;
  lanes = &map;
  rowScalars.clear();
  slots.clear();
  evaluated.clear();
  for (Operation *op : graph.ancestors(sinks))
    computeRowScalar(op);
  for (const EpilogueSink &sink : sinks)
    if (sink.kind == Kind::Key || sink.kind == Kind::Value)
      computeSlot(sink.target);
}

void EpilogueEmitter::emitTile(const ColumnTile &tile,
                               ArrayRef<EpilogueSink> sinks) {
  evaluated.clear();
  // Lanes past the end evaluate the last chunk again.
  Value column = b.add(tile.first, b.mul(lanes->chunk, kChunkColumns));
  int64_t last = (tile.limit - 1) / kChunkColumns * kChunkColumns;
  Position at;
  at.column = column;
  if (tile.limit % tile.width != 0) {
    at.exists = b.less(column, tile.limit);
    at.column = b.min(column, last);
  }
  if (lanes->hasIdle())
    at.exists = b.both(at.exists, b.less(lanes->row, lanes->rowsPerWarp));
  // All shuffles come before the first branch.
  SmallVector<Evaluated> chunks;
  for (const EpilogueSink &sink : sinks)
    chunks.push_back(evaluate(sink.value, at));
  for (auto [sink, chunk] : llvm::zip(sinks, chunks))
    store(sink, chunk, tile, at);
  evaluated.clear();
}

//===----------------------------------------------------------------------===//
// Stores
//===----------------------------------------------------------------------===//

void EpilogueEmitter::store(const EpilogueSink &sink, const Evaluated &chunk,
                            const ColumnTile &tile, const Position &at) {
  Value exists = b.both(at.exists, row.exists);
  auto ifExists = [&](llvm::function_ref<void()> body) {
    if (exists)
      b.ifThen(exists, body);
    else
      body();
  };
  if (sink.kind == Kind::SumOfSquares) {
    Value sum;
    for (auto [i, x] : llvm::enumerate(chunk.values)) {
      Value square = sum ? b.fma(x, x, sum) : b.fmul(x, x);
      if (sink.columns % kChunkColumns != 0) {
        Value inside = b.less(b.add(at.column, int64_t(i)), sink.columns);
        square = b.select(inside, square, sum ? sum : b.f32(0.0));
      }
      sum = square;
    }
    storeSum(sink, at.exists ? b.select(at.exists, sum, b.f32(0.0)) : sum,
             tile);
    return;
  }
  if (sink.kind == Kind::Buffer) {
    const CudaTensor &target = frame.tensor(sink.target);
    auto rounded = [&] {
      return chunk.words.empty() ? round(chunk.values, target.elementType)
                                 : chunk;
    };
    if (sink.columns % kChunkColumns != 0) {
      // Rows that don't begin at multiples of 16 bytes.
      Evaluated values = rounded();
      ifExists([&] {
        for (auto [i, value] : llvm::enumerate(values.values)) {
          Value column = b.add(at.column, int64_t(i));
          b.ifThen(b.less(column, sink.columns), [&, value = value] {
            Value narrow = value;
            if (!target.elementType.isF32())
              narrow = LLVM::FPTruncOp::create(b, target.elementType, value);
            b.store(narrow, target.at(b, row.index, column), "epilogue.store");
          });
        }
      });
      return;
    }
    if (target.elementType.isF32())
      return storeFloatPairs(sink, chunk.values, at, exists);
    Evaluated words = rounded();
    ifExists([&] {
      b.storeChunk(words.words, target.at(b, row.index, at.column),
                   "epilogue.store");
    });
    return;
  }
  // A head's columns lie together in every layout that exists here.
  CudaCache cache = frame.cache(sink.target);
  Slot slot = slots.lookup(sink.target);
  bool isKey = sink.kind == Kind::Key;
  Evaluated words =
      chunk.words.empty() ? round(chunk.values, cache.type.getDtype()) : chunk;
  exists = b.both(exists, slot.isValid);
  ifExists([&] {
    int64_t headDim = EpilogueGraph::cacheHeadDim(sink);
    Value head = b.toIndex(b.divide(at.column, headDim));
    Value inHead = b.toIndex(b.remainder(at.column, headDim));
    Value offset = b.add(cache.headOffset(b, slot.offset, head), inHead);
    Type element = cache.type.getDtype();
    Value base = isKey ? cache.key : cache.value;
    StringRef site = isKey ? "kv_append.store_k" : "kv_append.store_v";
    if (element.isF32()) {
      Value first = b.elementPointer(base, offset, element);
      b.storeFloats(ArrayRef<Value>(words.values).take_front(4), first, site);
      b.storeFloats(ArrayRef<Value>(words.values).drop_front(4),
                    b.pointer(first, kChunkBytes), site);
    } else {
      b.storeChunk(words.words, b.elementPointer(base, offset, element), site);
    }
  });
}

/// A chunk of f32 is 32 bytes, and a store 16: pairs of lanes exchange halves,
/// so that a store of the warp writes whole sectors.
void EpilogueEmitter::storeFloatPairs(const EpilogueSink &sink,
                                      ArrayRef<Value> values,
                                      const Position &at, Value exists) {
  const CudaTensor &target = frame.tensor(sink.target);
  SmallVector<Value> first(values.take_front(4)), second(values.drop_front(4));
  Value column = at.column;
  int64_t secondAt = 4;
  // The last pair of a ragged tile would be cut in two.
  bool pairs =
      lanes->chunks % 2 == 0 && sink.columns % (2 * kChunkColumns) == 0;
  if (pairs) {
    Value odd = b.equal(b.bitAnd(lanes->chunk, 1), 1);
    for (int64_t i = 0; i < 4; ++i) {
      Value given = b.select(odd, first[i], second[i]);
      Value taken = b.shuffleXor(given, 1, "epilogue.exchange");
      first[i] = b.select(odd, taken, first[i]);
      second[i] = b.select(odd, second[i], taken);
    }
    column = b.select(odd, b.sub(column, b.i32(4)), column);
    secondAt = 8;
  }
  auto storeBoth = [&] {
    Value pointer = target.at(b, row.index, column);
    b.storeFloats(first, pointer, "epilogue.store");
    b.storeFloats(second, b.pointer(pointer, secondAt * 4), "epilogue.store");
  };
  if (exists)
    b.ifThen(exists, storeBoth);
  else
    storeBoth();
}

void EpilogueEmitter::storeSum(const EpilogueSink &sink, Value sum,
                               const ColumnTile &tile) {
  Value total = sumOverLanes(sum, lanes->chunks, lanes->firstLane);
  Value first = b.equal(lanes->chunk, 0);
  if (lanes->hasIdle())
    first = b.both(first, b.less(lanes->row, lanes->rowsPerWarp));
  const CudaTensor &target = frame.tensor(sink.target);
  b.ifThen(b.both(first, row.exists), [&] {
    b.store(total, target.at(b, row.index, tile.index), "epilogue.store_sumsq");
  });
}
