// Keys and values of several sequences, in the layout that the module wants.
#ifndef PREFILL_RUNTIME_CORE_KVCACHE_H
#define PREFILL_RUNTIME_CORE_KVCACHE_H

#include "core/KVCacheLayout.h"
#include "core/LoadedModule.h"
#include "core/Memory.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace prefill::rt {

/// One allocation for all layers. Sequences take blocks from a free list as
/// they grow and give them back when truncated, so the block ids of a sequence
/// have no order that a kernel could rely on. Contiguous layouts are the case
/// of one block for each sequence.
class KVCache {
public:
  /// capacity: tokens for each sequence, 1 to max_seq; 0 means max_seq.
  static Result<std::unique_ptr<KVCache>>
  create(const LoadedModule &module, int64_t numSequences, int64_t capacity);

  const LoadedModule &module() const { return owner; }
  int64_t numSequences() const { return static_cast<int64_t>(lengths.size()); }
  int64_t capacity() const { return tokensPerSequence; }
  int64_t length(int64_t sequence) const { return lengths[sequence]; }
  uint64_t bytes() const { return allocator.current(MemoryClass::kvCache); }
  const KVCacheLayout &layout() const { return shape; }

  /// Takes the blocks that `length` tokens need (at most capacity()). Does not
  /// change length().
  void reserve(int64_t sequence, int64_t length);
  /// The blocks of a sequence in the order of its tokens.
  const std::vector<int32_t> &blocks(int64_t sequence) const {
    return blockTables[sequence];
  }
  /// Where token `position` of a sequence lies, as kernels count: block *
  /// block_size + offset, with the module's block_size.
  int64_t slot(int64_t sequence, int64_t position) const;
  /// The tokens are stored: they count from now on.
  void setLength(int64_t sequence, int64_t length) {
    lengths[sequence] = length;
  }
  Result<void> truncate(int64_t sequence, int64_t length);

  DeviceAddress keys(int64_t layer) const;
  DeviceAddress values(int64_t layer) const;
  /// What kernels may touch of a layer: K and V, one after the other or, in
  /// blocks, among each other.
  struct Part {
    const char *name; ///< "keys", "values" or "pages"
    DeviceAddress address;
    uint64_t bytes;
  };
  std::vector<Part> parts(int64_t layer) const;

  /// f32 [length, num_kv_heads, head_dim] each.
  Result<void> read(int64_t layer, int64_t sequence, float *keys,
                    float *values) const;
  /// NaN into every slot that holds no token. Free blocks are handed out in
  /// another order from then on.
  Result<void> poisonUnused();
  bool guardIntact() const { return storage.guardIntact(); }

private:
  explicit KVCache(const LoadedModule &module)
      : owner(module), allocator(module.device().backend().memory()) {}
  /// A layer's bytes on the host, through `copy` where they lie on a device.
  Result<std::byte *> layerBytes(int64_t layer,
                                 std::vector<std::byte> &copy) const;
  Result<void> checkSequence(int64_t sequence) const;
  int64_t blockTokens() const;

  const LoadedModule &owner;
  KVCacheLayout shape{};
  int64_t tokensPerSequence = 0;
  int64_t elementBytes = 0;
  Allocator allocator;
  Allocation storage;
  std::vector<int64_t> lengths;
  std::vector<std::vector<int32_t>> blockTables;
  std::vector<int32_t> freeBlocks; ///< taken from the back
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_KVCACHE_H
