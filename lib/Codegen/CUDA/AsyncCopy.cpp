//===- AsyncCopy.cpp - global rows to a tile in shared memory -------------===//
#include "prefill/Codegen/CUDA/AsyncCopy.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::prefill;

AsyncTileCopy::AsyncTileCopy(CudaBuilder &b, const SwizzledTile &tile,
                             int64_t threads, Value thread) {
  int64_t total = tile.rows * tile.chunks;
  bool sameChunk = threads % tile.chunks == 0;
  int64_t rowStep = threads / tile.chunks;
  for (int64_t begin = 0; begin < total; begin += threads) {
    Piece piece;
    bool whole = begin + threads <= total;
    if (sameChunk && !all.empty()) {
      const Piece &first = all.front();
      piece.rowsBelowFirst = begin / threads * rowStep;
      piece.row = b.add(first.row, piece.rowsBelowFirst);
      piece.chunk = first.chunk;
      // The permutation repeats: the destination is a constant further on.
      piece.offset =
          piece.rowsBelowFirst % SwizzledTile::kPeriod == 0
              ? b.add(first.offset, piece.rowsBelowFirst * tile.pitch())
              : tile.offset(b, piece.row, piece.chunk);
    } else {
      Value index = b.add(thread, begin);
      piece.row = b.divide(index, tile.chunks);
      piece.chunk = b.remainder(index, tile.chunks);
      piece.offset = tile.offset(b, piece.row, piece.chunk);
      if (all.empty())
        piece.rowsBelowFirst = 0;
    }
    if (!whole)
      piece.exists = b.less(b.add(thread, begin), total);
    all.push_back(piece);
  }
}

void AsyncTileCopy::issue(
    CudaBuilder &b, Value shared, StringRef site,
    llvm::function_ref<Source(const Piece &)> sourceOf) const {
  for (const Piece &piece : all) {
    auto copy = [&] {
      Source source = sourceOf(piece);
      b.copyAsync(b.pointer(shared, piece.offset), source.pointer, source.bytes,
                  site);
    };
    if (piece.exists)
      b.ifThen(piece.exists, copy);
    else
      copy();
  }
}
