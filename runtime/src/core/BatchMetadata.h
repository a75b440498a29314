// What kernels know about the tokens of one call.
#ifndef PREFILL_RUNTIME_CORE_BATCHMETADATA_H
#define PREFILL_RUNTIME_CORE_BATCHMETADATA_H

#include "core/KVCache.h"
#include "core/Memory.h"

#include <cstdint>
#include <vector>

namespace prefill::rt {

/// A checked request: sequence i appends tokens[cuSeqlens[i] ..
/// cuSeqlens[i + 1]) to cache sequence sequences[i].
struct Batch {
  const int32_t *tokens;
  std::vector<int32_t> cuSeqlens;
  std::vector<int32_t> sequences;
  bool allLogits; ///< a row of logits for every token, not one for a sequence

  int64_t numSequences() const {
    return static_cast<int64_t>(sequences.size());
  }
  int64_t numTokens() const { return cuSeqlens.back(); }
  int64_t numLogitRows() const {
    return allLogits ? numTokens() : numSequences();
  }
};

/// The arrays that the `batch` argument of a kernel points to:
///
///   tokens, positions   i32 [M_pad]; padded rows hold token 0 at position 0
///   slot_mapping        i64 [M_pad]; -1 in padded rows: store nothing
///   cu_seqlens          i32 [num_seqs + 1]
///   kv_lens             i32 [num_seqs], the tokens of this call included
///   block_table         i32 [num_seqs, block_table_stride]; -1 past the end
///   logits_indices      i32 [R_pad]; padded rows repeat row 0
///
/// They lie in one allocation of class temporaries, 64-byte aligned each.
class BatchMetadata {
public:
  /// Fills the arrays; the cache must have reserved the blocks.
  Result<void> build(const Batch &batch, const KVCache &cache, int64_t rowsPad,
                     int64_t logitRowsPad, Allocator &allocator);

  /// Appends the eleven words of the argument.
  void appendWords(std::vector<uint64_t> &words) const;

  int64_t maxKVLength() const { return longest; }
  bool guardIntact() const { return storage.guardIntact(); }

private:
  Allocation storage; ///< grows, never shrinks
  int64_t rowsPad = 0, logitRowsPad = 0, numSequences = 0;
  int64_t blockTableStride = 0, longest = 0;
  int32_t *tokens = nullptr, *positions = nullptr;
  int64_t *slotMapping = nullptr;
  int32_t *cuSeqlens = nullptr, *kvLens = nullptr, *blockTable = nullptr;
  int32_t *logitsIndices = nullptr;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_BATCHMETADATA_H
