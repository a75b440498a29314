//===- AttentionPack.cpp - query, keys and values in microkernel order ----===//
#include "Attention.h"
#include "BF16Pairs.h"
#include "VNNIPage.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/TileTable.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// As `loadPadded`, in the type that is packed.
Value loadForPacking(KernelBuilder &b, const AttentionKernelShape &shape,
                     Value memref, Value offset, int64_t count, int64_t width) {
  Value loaded = loadPadded(b, memref, offset, count, width);
  return shape.storedType == shape.elementType
             ? loaded
             : arith::ExtFOp::create(b, b.vectorF32(width), loaded);
}

void store(KernelBuilder &b, Value vector, Value memref, Value offset) {
  vector::StoreOp::create(b, vector, memref, ValueRange{offset});
}

/// Packs one KV block of a workgroup.
class BlockPacker {
public:
  BlockPacker(AttentionContext &context, const AttentionRows &rows,
              const AttentionBlock &block)
      : b(context.b), context(context), shape(context.shape), rows(rows),
        block(block), cache(block.cache), lanes(context.isa.lanes),
        pack(shape.kPackSize()) {}

  void emit() {
    Value panels = b.ceilDivide(block.numKeys, kPanelN);
    emitKeyOffsets(b.mul(panels, kPanelN));
    b.forLoop(b.index(0), panels, 1, [&](Value panel) {
      for (int64_t part = 0; part < kPanelN; part += lanes)
        emitKeys(panel, part);
      b.forLoop(b.index(0), b.index(kPanelN / pack), 1,
                [&](Value step) { emitValues(panel, step); });
    });
  }

private:
  /// Where each key's head lies in the cache; past the end the last key again.
  void emitKeyOffsets(Value count) {
    Value last = b.sub(block.numKeys, b.index(1));
    b.forLoop(b.index(0), count, 1, [&](Value key) {
      Value token = b.add(block.firstKey, b.min(key, last));
      Value offset = cache.headOffset(
          b, cache.tokenOffset(b, context.abi.batch(), rows.sequence, token),
          rows.kvHead);
      memref::StoreOp::create(
          b, arith::IndexCastOp::create(b, b.getI64Type(), offset),
          context.scratch.keyOffsets, ValueRange{key});
      // Rows of a head lie apart: the hardware's prefetcher does not see them
      // coming.
      prefetchHead(cache.key, offset, shape.headDimQk);
      prefetchHead(cache.value, offset, shape.headDimV);
    });
  }

  void prefetchHead(Value memref, Value offset, int64_t headDim) {
    int64_t line =
        kCacheLineBytes * 8 / shape.storedType.getIntOrFloatBitWidth();
    for (int64_t at = 0; at < headDim; at += line)
      memref::PrefetchOp::create(b, memref, ValueRange{b.add(offset, at)},
                                 /*isWrite=*/false, /*localityHint=*/3,
                                 /*isDataCache=*/true);
  }

  Value keyOffset(Value key) {
    return b.toIndex(
        memref::LoadOp::create(b, context.scratch.keyOffsets, ValueRange{key}));
  }

  /// Keys [part, part + lanes) of a panel: rows of the cache become columns.
  void emitKeys(Value panel, int64_t part) {
    SmallVector<Value> offsets;
    Value firstKey = b.add(b.mul(panel, kPanelN), part);
    for (int64_t i = 0; i < lanes; ++i)
      offsets.push_back(keyOffset(b.add(firstKey, i)));
    Value target = b.add(b.mul(panel, shape.keyPanelElements()), part * pack);
    int64_t width = lanes * pack; // channels of a vector
    int64_t whole = shape.headDimQk / width * width;
    b.forLoop(b.index(0), b.index(whole), width, [&](Value channel) {
      emitKeySquare(offsets, target, channel, width);
    });
    if (whole < shape.headDimQk)
      emitKeySquare(offsets, target, b.index(whole), shape.headDimQk - whole);
  }

  void emitKeySquare(ArrayRef<Value> offsets, Value target, Value channel,
                     int64_t channels) {
    auto words = VectorType::get({lanes}, b.getI32Type());
    SmallVector<Value> square;
    for (Value offset : offsets)
      square.push_back(vector::BitCastOp::create(
          b, words,
          loadForPacking(b, shape, cache.key, b.add(offset, channel), channels,
                         lanes * pack)));
    square = transposeLanes(b, square);
    auto elements = VectorType::get({lanes * pack}, shape.elementType);
    // channel / pack steps of kPanelN * pack elements.
    Value at = b.add(target, b.mul(channel, kPanelN));
    int64_t steps = llvm::divideCeil(channels, pack);
    for (int64_t step = 0; step < steps; ++step)
      store(b, vector::BitCastOp::create(b, elements, square[step]),
            context.scratch.keys, b.add(at, step * kPanelN * pack));
  }

  /// k_pack neighbouring keys of a panel, all columns of the values.
  void emitValues(Value panel, Value step) {
    Value key = b.add(b.mul(panel, kPanelN), b.mul(step, pack));
    SmallVector<Value> offsets;
    for (int64_t i = 0; i < pack; ++i)
      offsets.push_back(keyOffset(b.add(key, i)));
    Value target = b.add(b.mul(panel, shape.valuePanelElements()),
                         b.mul(step, pack * kPanelN));
    int64_t whole = shape.headDimV / kPanelN;
    b.forLoop(b.index(0), b.index(whole), 1, [&](Value column) {
      emitValuePanel(offsets, target, column, kPanelN);
    });
    if (whole * kPanelN < shape.headDimV)
      emitValuePanel(offsets, target, b.index(whole),
                     shape.headDimV - whole * kPanelN);
  }

  void emitValuePanel(ArrayRef<Value> offsets, Value target, Value column,
                      int64_t columns) {
    Value at = b.add(target, b.mul(column, kPanelN * kPanelN));
    Value channel = b.mul(column, kPanelN);
    for (int64_t part = 0; part < kPanelN; part += lanes) {
      int64_t count = std::clamp<int64_t>(columns - part, 0, lanes);
      SmallVector<Value> sources;
      for (Value offset : offsets)
        sources.push_back(loadForPacking(b, shape, cache.value,
                                         b.add(b.add(offset, channel), part),
                                         count, lanes));
      store(b, interleave(sources), context.scratch.values,
            b.add(at, part * pack));
    }
  }

  Value interleave(ArrayRef<Value> sources) {
    if (sources.size() == 1)
      return sources.front();
    SmallVector<int64_t> order;
    for (int64_t i = 0; i < lanes; ++i)
      order.append({i, lanes + i});
    return vector::ShuffleOp::create(b, sources[0], sources[1], order);
  }

  KernelBuilder &b;
  AttentionContext &context;
  const AttentionKernelShape &shape;
  const AttentionRows &rows;
  const AttentionBlock &block;
  const CacheView &cache;
  int64_t lanes, pack;
};

} // namespace

void prefill::packQuery(AttentionContext &context, const AttentionRows &rows,
                        Value query) {
  KernelBuilder &b = context.b;
  const AttentionKernelShape &shape = context.shape;
  int64_t width = context.isa.lanes * shape.kPackSize();
  Value count = b.sub(rows.rowEnd, rows.rowBegin);
  b.forLoop(b.index(0), count, 1, [&](Value row) {
    Value source = b.mul(b.add(rows.batchRow, row), shape.queryPitch);
    source = b.add(source, b.mul(rows.kvHead, shape.group * shape.headDimQk));
    b.forLoop(b.index(0), b.index(shape.group), 1, [&](Value head) {
      Value from = b.add(source, b.mul(head, shape.headDimQk));
      Value to = b.mul(b.add(b.mul(row, shape.group), head), shape.depth());
      forEachPiece(shape.headDimQk, width, [&](int64_t at, int64_t size) {
        store(b, loadForPacking(b, shape, query, b.add(from, at), size, size),
              context.scratch.query, b.add(to, at));
      });
      if (shape.depth() != shape.headDimQk) {
        Value zero =
            arith::ConstantOp::create(b, b.getZeroAttr(shape.elementType));
        memref::StoreOp::create(b, zero, context.scratch.query,
                                ValueRange{b.add(to, shape.headDimQk)});
      }
    });
  });
}

/// Copies the pages of a block as f32.
static void widenPages(AttentionContext &context, const AttentionBlock &block) {
  KernelBuilder &b = context.b;
  const AttentionKernelShape &shape = context.shape;
  const AttentionScratch &scratch = context.scratch;
  int64_t pack = kPack(shape.storedType);
  b.forLoop(
      b.index(0), b.ceilDivide(block.numKeys, kPanelN), 1, [&](Value panel) {
        auto pageOf = [&](Value panel) {
          return b.toIndex(
              memref::LoadOp::create(b, scratch.keyOffsets, ValueRange{panel}));
        };
        Value page = pageOf(panel), next = pageOf(b.add(panel, 1));
        widenPanel(b, context.isa, block.cache.key, page, scratch.keys,
                   b.mul(panel, shape.keyPanelElements()),
                   b.index(llvm::divideCeil(shape.headDimQk, pack)), next);
        widenPanel(b, context.isa, block.cache.value, page, scratch.values,
                   b.mul(panel, shape.valuePanelElements()),
                   b.index(shape.columns() / pack), next);
      });
}

/// Notes where the pages of a block lie, and the one behind them, which is
/// prefetched; copies what cannot be read in place.
static void locatePages(AttentionContext &context, const AttentionRows &rows,
                        const AttentionBlock &block, BlockMask mask) {
  KernelBuilder &b = context.b;
  const AttentionScratch &scratch = context.scratch;
  Value last = b.sub(rows.seqlenKv, b.index(1));
  b.forLoop(b.index(0), b.add(b.ceilDivide(block.numKeys, kPanelN), 1), 1,
            [&](Value panel) {
              Value token =
                  b.min(b.add(block.firstKey, b.mul(panel, kPanelN)), last);
              Value offset = block.cache.headOffset(
                  b,
                  block.cache.blockOffset(b, context.abi.batch(), rows.sequence,
                                          token),
                  rows.kvHead);
              memref::StoreOp::create(
                  b, arith::IndexCastOp::create(b, b.getI64Type(), offset),
                  scratch.keyOffsets, ValueRange{panel});
            });
  if (!context.shape.readsPages())
    return widenPages(context, block);
  if (mask == BlockMask::None)
    return;
  Value numTokens = b.remainder(block.numKeys, kPanelN);
  b.ifThen(b.compare(arith::CmpIPredicate::ne, numTokens, b.index(0)), [&] {
    Value last = b.divide(block.numKeys, kPanelN);
    Value page = b.toIndex(
        memref::LoadOp::create(b, scratch.keyOffsets, ValueRange{last}));
    copyVNNIValues(b, context.isa, block.cache.value, page,
                   context.shape.columns(), numTokens, scratch.lastValues);
  });
}

void prefill::packBlock(AttentionContext &context, const AttentionRows &rows,
                        const AttentionBlock &block, BlockMask mask) {
  if (context.shape.isPacked)
    locatePages(context, rows, block, mask);
  else
    BlockPacker(context, rows, block).emit();
}
