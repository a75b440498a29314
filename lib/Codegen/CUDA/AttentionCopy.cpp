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

KVBlockCopy::KVBlockCopy(CudaBuilder &b, const AttentionKernelShape &shape,
                         const AttentionRows &rows, const CudaBatch &batch,
                         const CudaCache &cache)
    : shape(shape), cache(cache), endKey(rows.endKey),
      lastKey(b.sub(rows.endKey, b.i32(1))),
      keyCopy(b, shape.keyTile(), shape.layout.threads(), b.threadId()),
      valueCopy(b, shape.valueTile(), shape.layout.threads(), b.threadId()) {
  // A sequence without keys visits no block.
  lastKey = b.max(lastKey, b.i32(0));
  Value row = b.mul(b.toI64(rows.sequence), b.toI64(batch.blockTableStride));
  table = b.elementPointer(batch.blockTable, row, b.getI32Type());
  headOffset = b.mul(b.toI64(rows.kvHead), b.toI64(cache.headStride));
  if (isPaged(cache))
    return;
  Value block = b.load(b.getI32Type(), table, "attention.load_block_table");
  headOffset =
      b.add(headOffset, b.mul(b.toI64(block), b.toI64(cache.blockStride)));
}

/// Whether keys and values lie in tiles of one shape: a thread then copies the
/// same rows and chunks of both.
static bool hasOnePattern(const AttentionKernelShape &shape) {
  return shape.keyTile().chunks == shape.valueTile().chunks;
}

int64_t KVBlockCopy::numPages() const {
  if (!isPaged(cache))
    return 0;
  return keyCopy.pieces().size() +
         (hasOnePattern(shape) ? 0 : valueCopy.pieces().size());
}

/// The key of a piece's row, the last one where the row is behind it.
Value KVBlockCopy::tokenOf(CudaBuilder &b, Value block,
                           const AsyncTileCopy::Piece &piece) const {
  return b.min(b.add(b.mul(block, shape.blockKv), piece.row), lastKey);
}

SmallVector<Value> KVBlockCopy::loadPages(CudaBuilder &b, Value block) const {
  SmallVector<Value> pages;
  if (!isPaged(cache))
    return pages;
  auto load = [&](const AsyncTileCopy &copy) {
    for (const AsyncTileCopy::Piece &piece : copy.pieces()) {
      Value page =
          b.divide(tokenOf(b, block, piece), cache.type.getBlockSize());
      pages.push_back(b.load(b.getI32Type(),
                             b.elementPointer(table, page, b.getI32Type()),
                             "attention.load_block_table"));
    }
  };
  load(keyCopy);
  if (!hasOnePattern(shape))
    load(valueCopy);
  return pages;
}

void KVBlockCopy::issue(CudaBuilder &b, Value block, ValueRange pages,
                        Value keyShared, Value valueShared) const {
  Type element = shape.elementType;
  Value firstKey = b.mul(block, shape.blockKv);
  auto elementOf = [&](const AsyncTileCopy::Piece &piece, Value page) {
    Value token = tokenOf(b, block, piece);
    Value offset = headOffset;
    if (page) {
      token = b.remainder(token, cache.type.getBlockSize());
      offset = b.add(offset, b.mul(b.toI64(page), b.toI64(cache.blockStride)));
    }
    offset = b.add(offset, b.mul(b.toI64(token), b.toI64(cache.tokenStride)));
    return b.add(offset, b.toI64(b.mul(piece.chunk, kChunkElements)));
  };
  auto copyTile = [&](const AsyncTileCopy &copy, Value base, Value shared,
                      int64_t chunks, int64_t headDim, ValueRange pages,
                      StringRef site) {
    size_t i = 0;
    copy.issue(b, shared, site,
               [&](const AsyncTileCopy::Piece &piece) -> AsyncTileCopy::Source {
                 Value exists = b.less(b.add(firstKey, piece.row), endKey);
                 Value bytes = pieceBytes(b, piece, chunks, headDim, exists);
                 Value offset =
                     elementOf(piece, pages.empty() ? Value() : pages[i]);
                 ++i;
                 if (chunks * kChunkElements != headDim)
                   offset = b.select(b.equal(bytes, 0), headOffset, offset);
                 return {b.elementPointer(base, offset, element), bytes};
               });
  };
  size_t keyPieces = pages.empty() ? 0 : keyCopy.pieces().size();
  copyTile(keyCopy, cache.key, keyShared, shape.keyTile().chunks,
           shape.heads.headDimQk, pages.take_front(keyPieces),
           "attention.load_k");
  copyTile(valueCopy, cache.value, valueShared, shape.valueTile().chunks,
           shape.heads.headDimV,
           hasOnePattern(shape) ? pages : pages.drop_front(keyPieces),
           "attention.load_v");
}
