// What kernels know about the tokens of one call.
#ifndef PREFILL_RUNTIME_CORE_BATCHMETADATA_H
#define PREFILL_RUNTIME_CORE_BATCHMETADATA_H

#include "core/Backend.h"
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
/// They lie in one allocation of class temporaries, 64-byte aligned each. For a
/// device with memory of its own they are laid out here and copied there.
class BatchMetadata {
public:
  /// Fills the arrays; the cache must have reserved the blocks. `allocator` has
  /// the device's memory, `hostAllocator` this machine's.
  Result<void> build(const Batch &batch, const KVCache &cache, int64_t rowsPad,
                     int64_t logitRowsPad, Allocator &allocator,
                     Allocator &hostAllocator);

  /// Appends the eleven words of the argument.
  void appendWords(std::vector<uint64_t> &words) const;
  /// The arrays that the words point to.
  void appendRanges(std::vector<MemoryRange> &ranges) const;

  int64_t maxKVLength() const { return longest; }
  bool guardIntact() const { return storage.guardIntact(); }

private:
  enum Array {
    tokens,
    positions,
    slotMapping,
    cuSeqlens,
    kvLens,
    blockTable,
    logitsIndices,
    numArrays
  };
  DeviceAddress address(Array array) const {
    return storage.address() + offsets[array];
  }
  void fillArrays(const Batch &batch, const KVCache &cache, std::byte *arrays);

  // Both grow and never shrink; staging stays empty where storage is the
  // host's.
  Allocation storage, staging;
  int64_t rowsPad = 0, logitRowsPad = 0, numSequences = 0;
  int64_t blockTableStride = 0, longest = 0;
  uint64_t offsets[numArrays] = {}, sizes[numArrays] = {};
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_BATCHMETADATA_H
