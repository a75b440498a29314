//===- Batch.h - the ragged batch and the KV cache by slots -----*- C++ -*-===//
// Values of !prefill.batch and !prefill.kv_cache. Memory layouts do not exist
// here: a cache is a list of slots, and each knows whether it was written.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_REFERENCE_BATCH_H
#define PREFILL_REFERENCE_BATCH_H

#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "llvm/Support/Error.h"
#include <vector>

namespace mlir::prefill::reference {

/// M rows of S sequences; R rows whose logits are asked for. Rows from
/// cu_seqlens[S] to M are padding.
struct Batch {
  std::vector<int32_t> tokens;                  ///< [M]
  std::vector<int32_t> positions;               ///< [M]
  std::vector<int64_t> slotMapping;             ///< [M]; -1: do not write
  std::vector<int32_t> cuSeqlens{0};            ///< [S + 1]
  std::vector<int32_t> kvLens;                  ///< [S], after the append
  std::vector<std::vector<int32_t>> blockTable; ///< [S][blocks]
  std::vector<int32_t> logitsIndices;           ///< [R]

  int64_t numRows() const { return tokens.size(); }
  int64_t numSequences() const { return kvLens.size(); }
  int64_t queryLength(int64_t sequence) const {
    return cuSeqlens[sequence + 1] - cuSeqlens[sequence];
  }
  /// Slot of key `position` of a sequence, -1 when the block table ends before.
  int64_t slotOf(int64_t sequence, int64_t position, int64_t blockSize) const;
  /// Lengths of the lists agree, cu_seqlens ascends within M, indices are in
  /// range.
  llvm::Error verify() const;
};

/// One layer's keys and values. Values never written are NaN.
struct KVCache {
  KVCache() = default;
  KVCache(KVCacheType type, int64_t numBlocks);

  int64_t numSlots() const { return written.size(); }
  double *key(int64_t slot, int64_t head) {
    return keys.data() + (slot * numKvHeads + head) * headDimQk;
  }
  const double *key(int64_t slot, int64_t head) const {
    return keys.data() + (slot * numKvHeads + head) * headDimQk;
  }
  double *value(int64_t slot, int64_t head) {
    return vals.data() + (slot * numKvHeads + head) * headDimV;
  }
  const double *value(int64_t slot, int64_t head) const {
    return vals.data() + (slot * numKvHeads + head) * headDimV;
  }

  int64_t numKvHeads = 0, headDimQk = 0, headDimV = 0, blockSize = 0;
  std::vector<double> keys, vals; ///< [slots, heads, head_dim_qk / head_dim_v]
  std::vector<bool> written;      ///< [slots]
};

/// What one call of a model appends to each of its sequences.
struct Step {
  std::vector<std::vector<int32_t>> tokens; ///< [S], may be empty lists
  int64_t paddedRows = 0; ///< rows behind the last sequence, slot -1
  bool allRows = true;    ///< logits of every row, or of each sequence's last
};

/// Lays sequences out in a cache and makes the batches of successive steps. The
/// blocks of the sequences are dealt in turns, from the last to the first, so
/// that no two blocks of a sequence are neighbours by accident.
class BatchBuilder {
public:
  /// `maxLength` tokens each.
  BatchBuilder(int64_t numSequences, int64_t maxLength, int64_t blockSize);

  int64_t numBlocks() const;
  int64_t length(int64_t sequence) const { return lengths[sequence]; }
  int64_t slotOf(int64_t sequence, int64_t position) const;
  /// The batch that appends the step's tokens. Error when a sequence would
  /// outgrow maxLength.
  llvm::Expected<Batch> next(const Step &step);

private:
  int64_t maxLength, blockSize;
  std::vector<int64_t> lengths;
  std::vector<std::vector<int32_t>> blockTable;
};

/// One sequence of which `past` tokens lie in slots 0 to past - 1 of a cache of
/// one block; all rows, or the last row's logits.
Batch makeSequenceBatch(int64_t past, ArrayRef<int32_t> tokens,
                        bool allRows = true);

} // namespace mlir::prefill::reference

#endif // PREFILL_REFERENCE_BATCH_H
