// Where a token's key and value lie: the one description of the layouts.
#ifndef PREFILL_RUNTIME_CORE_KVCACHELAYOUT_H
#define PREFILL_RUNTIME_CORE_KVCACHELAYOUT_H

#include "prefill/checkpoint/Result.h"
#include "prefill/module_generated.h"

#include <cstdint>

namespace prefill::rt {

/// "contiguous", "head_major", "paged_nhd".
const char *stringify(module::KVLayout layout);

/// The contract of a module's cache, checked at load and stated only here:
///   contiguous, head_major   block_size == max_seq (one block a sequence)
///   paged_nhd                1 <= block_size <= 65536, any integer
Result<void> verifyKVCacheSpec(const module::KVCacheSpec &spec, int64_t maxSeq);

/// Element (token t of block b, head h, feature d) of a layer's K lies at
/// keyBase + b * blockStride + t * tokenStride + h * headStride + d, V
/// likewise: one kernel serves all layouts through these numbers. Elements, not
/// bytes.
///
///   contiguous   K and V [num_blocks, capacity, num_kv_heads, head_dim]
///   head_major   K and V [num_blocks, num_kv_heads, capacity, head_dim]
///   paged_nhd    [num_blocks, 2, block_size, num_kv_heads, head_dim]
///
/// K and V share the strides, so head_dim is the larger of the two head sizes.
struct KVCacheLayout {
  int64_t numBlocks;
  int64_t blocksPerSequence;
  int64_t blockTokens; ///< tokens that a block has room for
  int64_t blockStride, tokenStride, headStride;
  int64_t valueOffset;   ///< from a layer's K to its V
  int64_t layerElements; ///< K and V of one layer

  /// capacity: tokens for each sequence. At most 2^62 bytes, else an error.
  static Result<KVCacheLayout> create(const module::KVCacheSpec &spec,
                                      int64_t numSequences, int64_t capacity,
                                      int64_t numLayers);
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_KVCACHELAYOUT_H
