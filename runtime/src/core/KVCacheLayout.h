// Where a token's key and value lie: the one description of the layouts.
#ifndef PREFILL_RUNTIME_CORE_KVCACHELAYOUT_H
#define PREFILL_RUNTIME_CORE_KVCACHELAYOUT_H

#include "prefill/checkpoint/Result.h"
#include "prefill/module_generated.h"

#include <cstdint>

namespace prefill::rt {

/// "contiguous", "head_major", "paged_nhd", "paged_vnni".
const char *stringify(module::KVLayout layout);

/// The contract of a module's cache, checked at load and stated only here:
///   contiguous, head_major   block_size == max_seq (one block a sequence)
///   paged_nhd                1 <= block_size <= 65536, any integer
///   paged_vnni               block_size == 32, dtype f32 or bf16
Result<void> verifyKVCacheSpec(const module::KVCacheSpec &spec, int64_t maxSeq);

/// Element (token t of block b, head h, feature d) of a layer's K lies at
/// keyBase + b * blockStride + t * tokenStride + h * headStride + d, V
/// likewise: one kernel serves all layouts but the last through these numbers.
/// Elements, not bytes.
///
///   contiguous   K and V [num_blocks, capacity, num_kv_heads, head_dim]
///   head_major   K and V [num_blocks, num_kv_heads, capacity, head_dim]
///   paged_nhd    [num_blocks, 2, block_size, num_kv_heads, head_dim]
///   paged_vnni   [num_blocks, 2, num_kv_heads, page]
///
/// A page of paged_vnni holds 32 tokens of a head in the order that a kernel
/// multiplies with; p is 2 for bf16 and 1 for f32, sizes are rounded up:
///
///   K page   [head_dim_qk / p, 32 tokens, p features]
///   V page   [head_dim_v / 32, 32 / p, 32 features, p tokens]
///
/// K and V share the strides, so head_dim and page are the larger of the two.
struct KVCacheLayout {
  int64_t numBlocks;
  int64_t blocksPerSequence;
  int64_t blockTokens; ///< tokens that a block has room for
  int64_t blockStride, tokenStride, headStride;
  int64_t valueBase;     ///< from a layer's K to its V
  int64_t layerElements; ///< K and V of one layer
  int64_t pagePack = 0;  ///< p of paged_vnni, 0 for the other layouts
  int64_t keyFeatures = 0, valueFeatures = 0; ///< of a head, padding included

  /// From keyBase or valueBase to an element.
  int64_t keyOffset(int64_t block, int64_t token, int64_t head,
                    int64_t feature) const;
  int64_t valueOffset(int64_t block, int64_t token, int64_t head,
                      int64_t feature) const;

  /// capacity: tokens for each sequence. At most 2^62 bytes, else an error.
  /// featureUnit: heads begin at multiples of it (Backend::featureUnit).
  static Result<KVCacheLayout> create(const module::KVCacheSpec &spec,
                                      int64_t numSequences, int64_t capacity,
                                      int64_t numLayers,
                                      int64_t featureUnit = 1);
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_KVCACHELAYOUT_H
