//===- AttentionBlockRange.cpp - which KV blocks a query tile visits ------===//
#include "prefill/Analysis/AttentionBlockRange.h"

#include <algorithm>

using namespace mlir::prefill;

KVBlockRange<int64_t>
mlir::prefill::attentionBlockRange(const AttentionShape &shape,
                                   SequenceLengths<int64_t> lengths,
                                   int64_t rowBegin, int64_t rowEnd) {
  return attentionBlockRange(IntegerArithmetic(), shape, lengths, rowBegin,
                             rowEnd);
}

VisitedTiles mlir::prefill::countVisitedTiles(const AttentionShape &shape,
                                              SequenceLengths<int64_t> lengths,
                                              int64_t blockQ) {
  VisitedTiles tiles;
  for (int64_t row = 0; row < lengths.seqlenQ; row += blockQ) {
    KVBlockRange<int64_t> range = attentionBlockRange(
        shape, lengths, row, std::min(row + blockQ, lengths.seqlenQ));
    tiles.full += range.fullEnd - range.fullBegin;
    tiles.edge += range.end - range.begin - (range.fullEnd - range.fullBegin);
  }
  return tiles;
}
