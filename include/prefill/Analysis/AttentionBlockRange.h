//===- AttentionBlockRange.h - which KV blocks a query tile visits --------===//
// The one place that knows which keys a query row sees and which KV blocks a
// tile of query rows has to visit. Kernels, plans and traffic reports call it;
// the reference interpreter does not: it masks element by element.
//
// Query row i of a sequence with q_len queries and kv_len keys stands at
// position p = kv_len - q_len + i (bottom-right aligned, so that a chunk and a
// whole prompt are the same thing) and sees the keys
//   [window ? max(0, p - window + 1) : 0,  causal ? max(0, p + 1) : kv_len).
// KV blocks lie on absolute positions: block b holds the keys
// [b * block_kv, (b + 1) * block_kv).
//
// The formulas are written once over an arithmetic `A`, so that they give
// numbers (IntegerArithmetic) as well as IR (IndexArithmetic.h). `A` has a type
// Value and: constant(int64_t), add, sub, mul, min, max (Value, Value), and
// divFloor, divCeil (Value that is not negative, positive int64_t).
//===----------------------------------------------------------------------===//
#ifndef PREFILL_ANALYSIS_ATTENTIONBLOCKRANGE_H
#define PREFILL_ANALYSIS_ATTENTIONBLOCKRANGE_H

#include <cstdint>

namespace mlir::prefill {

/// What is known about an attention op at compile time.
struct AttentionShape {
  bool causal = true;
  /// Keys a row sees at most, its own included; 0: no sliding window.
  int64_t slidingWindow = 0;
  /// Keys of a KV block.
  int64_t blockKv = 0;
};

/// Lengths of one sequence: its queries in this call, and its keys, those of
/// the call included.
template <typename Value> struct SequenceLengths {
  Value seqlenQ;
  Value seqlenKv;
};

/// Half-open range of keys.
template <typename Value> struct KeyRange {
  Value begin;
  Value end;
};

/// KV blocks of a query tile, in units of blocks:
/// 0 <= begin <= fullBegin <= fullEnd <= end. Blocks outside [begin, end) hold
/// no key that any row of the tile sees. All keys of the blocks in
/// [fullBegin, fullEnd) are seen by every row: they need no mask.
template <typename Value> struct KVBlockRange {
  Value begin;
  Value fullBegin;
  Value fullEnd;
  Value end;
};

/// Arithmetic on numbers.
struct IntegerArithmetic {
  using Value = int64_t;
  Value constant(int64_t value) const { return value; }
  Value add(Value a, Value b) const { return a + b; }
  Value sub(Value a, Value b) const { return a - b; }
  Value mul(Value a, Value b) const { return a * b; }
  Value min(Value a, Value b) const { return a < b ? a : b; }
  Value max(Value a, Value b) const { return a < b ? b : a; }
  Value divFloor(Value a, int64_t b) const { return a / b; }
  Value divCeil(Value a, int64_t b) const { return (a + b - 1) / b; }
};

/// Keys that query row `row` sees. Empty (end <= begin) for a row that stands
/// before the first key.
template <typename A>
KeyRange<typename A::Value>
visibleKeys(A arith, const AttentionShape &shape,
            SequenceLengths<typename A::Value> lengths, typename A::Value row) {
  using Value = typename A::Value;
  Value zero = arith.constant(0);
  Value afterRow =
      arith.add(arith.add(arith.sub(lengths.seqlenKv, lengths.seqlenQ), row),
                arith.constant(1));
  Value begin =
      shape.slidingWindow
          ? arith.max(zero,
                      arith.sub(afterRow, arith.constant(shape.slidingWindow)))
          : zero;
  Value end = shape.causal ? arith.max(zero, afterRow) : lengths.seqlenKv;
  return {begin, end};
}

/// KV blocks of the query rows [rowBegin, rowEnd), all of them rows of the
/// sequence. An empty tile of an empty sequence visits nothing.
template <typename A>
KVBlockRange<typename A::Value>
attentionBlockRange(A arith, const AttentionShape &shape,
                    SequenceLengths<typename A::Value> lengths,
                    typename A::Value rowBegin, typename A::Value rowEnd) {
  using Value = typename A::Value;
  // Both bounds of a row's range grow with the row: the first row gives the
  // first visited key and the end of what all rows see, the last row the rest.
  KeyRange<Value> first = visibleKeys(arith, shape, lengths, rowBegin);
  KeyRange<Value> last =
      visibleKeys(arith, shape, lengths, arith.sub(rowEnd, arith.constant(1)));
  Value begin = arith.divFloor(first.begin, shape.blockKv);
  Value end = arith.divCeil(last.end, shape.blockKv);
  Value fullBegin = begin;
  if (shape.slidingWindow) {
    // A tile without any key may still stand behind the start of its window.
    end = arith.max(begin, end);
    fullBegin = arith.min(arith.divCeil(last.begin, shape.blockKv), end);
  }
  Value fullEnd =
      arith.max(arith.divFloor(first.end, shape.blockKv), fullBegin);
  return {begin, fullBegin, fullEnd, end};
}

/// Numbers for one query tile.
KVBlockRange<int64_t> attentionBlockRange(const AttentionShape &shape,
                                          SequenceLengths<int64_t> lengths,
                                          int64_t rowBegin, int64_t rowEnd);

/// Tiles of block_q query rows by block_kv keys that attention over one
/// sequence visits for one KV head: O(seqlen_q * window) with a sliding window.
struct VisitedTiles {
  int64_t full = 0;
  int64_t edge = 0;
  int64_t total() const { return full + edge; }
};
VisitedTiles countVisitedTiles(const AttentionShape &shape,
                               SequenceLengths<int64_t> lengths,
                               int64_t blockQ);

} // namespace mlir::prefill

#endif // PREFILL_ANALYSIS_ATTENTIONBLOCKRANGE_H
