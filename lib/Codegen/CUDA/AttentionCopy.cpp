//===- AttentionCopy.cpp - query, keys and values to shared memory --------===//
#include "Attention.h"

using namespace mlir;
using namespace mlir::prefill;

static constexpr int64_t kElementBytes = 2;

/// Source bytes of a piece (i32): 0 for padding of a row and where `valid`, an
/// i1, is false.
static Value pieceBytes(CudaBuilder &b, const AsyncTileCopy::Piece &piece,
                        int64_t tileChunks, int64_t headDim, Value valid) {
  if (tileChunks * kChunkElements != headDim)
    valid = b.both(valid, b.less(piece.chunk, headDim / kChunkElements));
  return b.select(valid, b.i32(kChunkBytes), b.i32(0));
}

void prefill::emitQueryCopy(CudaBuilder &b, const AttentionKernelShape &shape,
                            const AttentionRows &rows, Value query,
                            Value shared) {
  SwizzledTile tile = shape.queryTile();
  int64_t group = shape.group(), headDim = shape.heads.headDimQk;
  AsyncTileCopy copy(b, tile, shape.layout.threads(), b.threadId());
  // The heads of a group lie one after the other in a query row.
  Value origin = b.add(b.mul(b.toI64(rows.batchRow), shape.queryRowElements()),
                       b.toI64(b.mul(rows.kvHead, group * headDim)));
  Value first = b.elementPointer(query, origin, shape.elementType);
  copy.issue(b, shared, "attention.load_q",
             [&](const AsyncTileCopy::Piece &piece) -> AsyncTileCopy::Source {
               Value row = b.divide(piece.row, group);
               Value head = b.remainder(piece.row, group);
               Value bytes = pieceBytes(b, piece, tile.chunks, headDim,
                                        b.less(row, rows.count));
               // A tile's rows are near enough for 32 bits.
               Value offset =
                   b.add(b.mul(row, shape.queryRowElements() * kElementBytes),
                         b.add(b.mul(head, headDim * kElementBytes),
                               b.mul(piece.chunk, kChunkBytes)));
               // No address is made of what does not exist.
               offset = b.select(b.equal(bytes, 0), b.i32(0), offset);
               return {b.pointer(first, b.toI64(offset)), bytes};
             });
}

/// Whether the keys of a sequence may lie in several blocks of the cache.
static bool isPaged(const CudaCache &cache) {
  return cache.type.getLayout() == KVLayout::PagedNHD;
}

// As many rows at a time as the threads can copy, a power of two: a thread then
// has one chunk and rows that are constants apart, and needs few registers.
// Where a row's chunks are no power of two the last threads have no part.
RowCopy::RowCopy(CudaBuilder &b, const SwizzledTile &tile, int64_t threads,
                 int64_t headDim) {
  rowStep =
      llvm::bit_floor(uint64_t(std::min(threads / tile.chunks, tile.rows)));
  while (tile.rows % rowStep != 0)
    rowStep /= 2;
  Value thread = b.threadId();
  if (rowStep * tile.chunks != threads)
    takesPart = b.less(thread, rowStep * tile.chunks);
  firstRow = b.divide(thread, tile.chunks);
  chunk = b.remainder(thread, tile.chunks);
  for (int64_t row = 0; row < tile.rows; row += rowStep) {
    int64_t inPeriod = row % SwizzledTile::kPeriod;
    if (row == inPeriod)
      offsets.push_back(tile.offset(b, b.add(firstRow, row), chunk));
    else
      offsets.push_back(
          b.add(offsets[inPeriod / rowStep], (row - inPeriod) * tile.pitch()));
  }
  if (tile.chunks * kChunkElements != headDim) {
    hasData = b.less(chunk, headDim / kChunkElements);
    // Padding is not read, but its address is made.
    chunk = b.min(chunk, headDim / kChunkElements - 1);
  }
}

KVBlockCopy::KVBlockCopy(CudaBuilder &b, const AttentionKernelShape &shape,
                         const AttentionRows &rows, const CudaBatch &batch,
                         const CudaCache &cache)
    : shape(shape), cache(cache), endKey(rows.endKey),
      zero(emitUnknownZero(b, batch)) {
  lastPage = b.divide(b.sub(endKey, b.i32(1)), cache.type.getBlockSize());
  Value tableRow =
      b.mul(b.toI64(rows.sequence), b.toI64(batch.blockTableStride));
  table = b.elementPointer(batch.blockTable, tableRow, b.getI32Type());
  Value first = b.mul(b.toI64(rows.kvHead), b.toI64(cache.headStride));
  if (!isPaged(cache)) {
    Value block = b.load(b.getI32Type(), table, "attention.load_block_table");
    first = b.add(first, b.mul(b.toI64(block), b.toI64(cache.blockStride)));
  }
  auto add = [&](Value memory, const SwizzledTile &tile, int64_t headDim,
                 StringRef site) {
    Side side{RowCopy(b, tile, shape.layout.threads(), headDim), Value(), site};
    Value element =
        b.add(first, b.toI64(b.mul(side.copy.chunk, kChunkElements)));
    side.first = b.elementPointer(memory, element, shape.elementType);
    sides.push_back(std::move(side));
  };
  add(cache.key, shape.keyTile(), shape.heads.headDimQk, "attention.load_k");
  add(cache.value, shape.valueTile(), shape.heads.headDimV, "attention.load_v");
}

/// Whether keys and values lie in tiles of one shape: a thread then copies the
/// same rows of both.
bool KVBlockCopy::hasOnePattern() const {
  return shape.heads.headDimQk == shape.heads.headDimV;
}

int64_t KVBlockCopy::numPages() const {
  if (!isPaged(cache))
    return 0;
  return sides[0].copy.offsets.size() +
         (hasOnePattern() ? 0 : sides[1].copy.offsets.size());
}

/// The key of a thread's i-th row of a block.
Value KVBlockCopy::keyOf(CudaBuilder &b, Value block, const RowCopy &copy,
                         int64_t i) const {
  return b.add(b.add(b.mul(block, shape.blockKv), copy.firstRow),
               i * copy.rowStep);
}

SmallVector<Value> KVBlockCopy::loadPages(CudaBuilder &b, Value block) const {
  SmallVector<Value> pages;
  for (const Side &side : sides)
    for (int64_t i = 0, e = side.copy.offsets.size();
         i < e && int64_t(pages.size()) < numPages(); ++i) {
      Value page = b.min(
          b.divide(keyOf(b, block, side.copy, i), cache.type.getBlockSize()),
          lastPage);
      pages.push_back(b.load(b.getI32Type(),
                             b.elementPointer(table, page, b.getI32Type()),
                             "attention.load_block_table"));
    }
  return pages;
}

/// Elements from the first of the sequence's (paged: the cache's) to a key's.
Value KVBlockCopy::elementOf(CudaBuilder &b, Value key, Value page,
                             Value again) const {
  Value offset;
  if (page) {
    // Where page and KV block fit, a thread's places in a page are the same in
    // every block: eight registers for a product that is made in one step.
    key = b.remainder(b.add(key, again), cache.type.getBlockSize());
    offset = b.mul(b.toI64(page), b.toI64(cache.blockStride));
  }
  Value inBlock = b.mul(b.toI64(key), b.toI64(cache.tokenStride));
  return offset ? b.add(offset, inBlock) : inBlock;
}

void KVBlockCopy::issue(CudaBuilder &b, Value block, ValueRange pages,
                        Value keyShared, Value valueShared) const {
  auto copyRow = [&](const Side &side, Value shared, int64_t i, Value element,
                     Value isKey) {
    Value bytes = b.select(b.both(isKey, side.copy.hasData), b.i32(kChunkBytes),
                           b.i32(0));
    b.copyAsync(b.pointer(shared, side.copy.offsets[i]),
                b.elementPointer(side.first, element, shape.elementType), bytes,
                side.site);
  };
  auto ifTakesPart = [&](const RowCopy &copy, llvm::function_ref<void()> body) {
    if (copy.takesPart)
      b.ifThen(copy.takesPart, body);
    else
      body();
  };
  Value again = b.mul(zero, block);
  Value shared[] = {keyShared, valueShared};
  size_t page = 0;
  for (size_t s = 0; s < sides.size(); ++s) {
    const RowCopy &copy = sides[s].copy;
    ifTakesPart(copy, [&] {
      for (int64_t i = 0, e = copy.offsets.size(); i < e; ++i) {
        // Behind the last key nothing is read: the address does not matter.
        Value key = keyOf(b, block, copy, i);
        Value isKey = b.less(key, endKey);
        Value element = elementOf(
            b, key, pages.empty() ? Value() : Value(pages[page++]), again);
        copyRow(sides[s], shared[s], i, element, isKey);
        if (hasOnePattern())
          copyRow(sides[1], shared[1], i, element, isKey);
      }
    });
    if (hasOnePattern())
      break;
  }
}
