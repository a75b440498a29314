//===- AttentionSplits.h - which keys a split of attention holds -*- C++
//-*-===//
// Split-KV: the keys of a sequence are cut into num_splits ranges, each a
// workgroup's of its own. As in AttentionBlockRange.h the formulas are written
// once over an arithmetic, and the reference interpreter does not use them.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_ANALYSIS_ATTENTIONSPLITS_H
#define PREFILL_ANALYSIS_ATTENTIONSPLITS_H

#include "prefill/Analysis/AttentionBlockRange.h"

namespace mlir::prefill {

/// Splits begin at multiples of it: every block_kv of a split kernel divides
/// it, so that no KV block belongs to two splits.
inline constexpr int64_t kSplitAlignment = 128;

/// Keys of a split: an even share, rounded up to whole kSplitAlignment. The
/// range may lie partly or wholly behind the last key.
template <typename A>
KeyRange<typename A::Value> splitKeys(A arith, int64_t numSplits,
                                      typename A::Value seqlenKv,
                                      typename A::Value split) {
  auto length = arith.mul(arith.divCeil(seqlenKv, numSplits * kSplitAlignment),
                          arith.constant(kSplitAlignment));
  auto begin = arith.mul(split, length);
  return {begin, arith.add(begin, length)};
}

/// The blocks of `range` that lie in a split; `blockKv` divides
/// kSplitAlignment. Cutting every bound the same way keeps their order, and
/// each of the range's three parts becomes its intersection with the split.
template <typename A>
KVBlockRange<typename A::Value>
splitBlockRange(A arith, KVBlockRange<typename A::Value> range,
                KeyRange<typename A::Value> keys, int64_t blockKv) {
  auto first = arith.divFloor(keys.begin, blockKv);
  auto last = arith.divFloor(keys.end, blockKv);
  auto cut = [&](typename A::Value bound) {
    return arith.min(arith.max(bound, first), last);
  };
  return {cut(range.begin), cut(range.fullBegin), cut(range.fullEnd),
          cut(range.end)};
}

} // namespace mlir::prefill

#endif // PREFILL_ANALYSIS_ATTENTIONSPLITS_H
