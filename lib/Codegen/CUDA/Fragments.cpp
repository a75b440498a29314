//===- Fragments.cpp - which lane holds what of a matrix ------------------===//
#include "prefill/Codegen/CUDA/Fragments.h"

using namespace mlir;
using namespace mlir::prefill;

Value prefill::sumRow(CudaBuilder &b, Value lane, int64_t e) {
  return b.add(b.divide(lane, 4), e / 2 * 8);
}
Value prefill::sumColumn(CudaBuilder &b, Value lane, int64_t e) {
  return b.add(b.mul(b.bitAnd(lane, 3), 2), e % 2);
}

// Lane i gives row i % 8 of matrix i / 8. Matrices of A and of transposed B:
// rows 0-7, rows 8-15, then the same of the next chunk; of B: both chunks of
// rows 0-7, then of rows 8-15.
FragmentReader::FragmentReader(CudaBuilder &b, const SwizzledTile &tile,
                               Operand operand, Value lane, Value firstRow)
    : tile(tile), operand(operand) {
  Value row, chunk;
  if (operand == Operand::B) {
    row = b.add(b.bitAnd(lane, 7), b.mul(b.divide(lane, 16), 8));
    chunk = b.bitAnd(b.divide(lane, 8), 1);
  } else {
    row = b.bitAnd(lane, 15);
    chunk = b.divide(lane, 16);
  }
  row = b.add(firstRow, row);
  rowOffset = b.mul(row, tile.pitch());
  chunkOffset = b.mul(b.bitXor(chunk, tile.permutation(b, row)), kChunkBytes);
}

// 16 rows further on the permutation is the same. An even chunk number is added
// by XOR within a group of chunks, where chunk and permutation differ from it
// in other bits or by XOR; groups are constants apart, as rows are: they become
// a part of the instruction, and one address in a register serves all of them.
SmallVector<Value> FragmentReader::load(CudaBuilder &b, Value shared,
                                        int64_t row, int64_t chunkPair,
                                        StringRef site) const {
  int64_t inGroup = 2 * chunkPair % tile.group();
  int64_t group = 2 * chunkPair - inGroup;
  Value chunk = b.bitXor(chunkOffset, inGroup * kChunkBytes);
  Value lanes = b.pointer(shared, b.add(rowOffset, chunk));
  return b.loadMatrix(
      b.pointer(lanes, row * tile.pitch() + group * kChunkBytes), 4,
      operand == Operand::BTransposed, site);
}
