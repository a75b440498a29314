#include "core/BatchMetadata.h"

#include <algorithm>

using namespace prefill::rt;

namespace {

/// Grows the allocation to at least `bytes`; two generations never coexist.
Result<void> grow(Allocation &allocation, uint64_t bytes,
                  Allocator &allocator) {
  if (bytes <= allocation.size())
    return {};
  allocation = Allocation();
  Result<Allocation> grown =
      allocator.allocate(MemoryClass::temporaries, bytes, "batch metadata");
  if (!grown)
    return grown.takeError();
  allocation = std::move(*grown);
  return {};
}

} // namespace

Result<void> BatchMetadata::build(const Batch &batch, const KVCache &cache,
                                  int64_t rowsPad, int64_t logitRowsPad,
                                  Allocator &allocator,
                                  Allocator &hostAllocator) {
  this->rowsPad = rowsPad;
  this->logitRowsPad = logitRowsPad;
  numSequences = batch.numSequences();
  blockTableStride = 1;
  for (int32_t sequence : batch.sequences)
    blockTableStride = std::max<int64_t>(
        blockTableStride, static_cast<int64_t>(cache.blocks(sequence).size()));

  uint64_t bytes = 0;
  auto place = [&](Array array, uint64_t size) {
    offsets[array] = bytes;
    sizes[array] = size;
    bytes += (size + 63) / 64 * 64;
  };
  place(tokens, rowsPad * 4);
  place(positions, rowsPad * 4);
  place(slotMapping, rowsPad * 8);
  place(cuSeqlens, (numSequences + 1) * 4);
  place(kvLens, numSequences * 4);
  place(blockTable, numSequences * blockTableStride * 4);
  place(logitsIndices, logitRowsPad * 4);
  if (Result<void> ok = grow(storage, bytes, allocator); !ok)
    return ok;
  if (allocator.memory().isHost()) {
    fillArrays(batch, cache, storage.data());
    return {};
  }
  if (Result<void> ok = grow(staging, bytes, hostAllocator); !ok)
    return ok;
  fillArrays(batch, cache, staging.data());
  return allocator.memory().upload(storage.address(), staging.data(), bytes);
}

void BatchMetadata::fillArrays(const Batch &batch, const KVCache &cache,
                               std::byte *arrays) {
  auto at = [&](Array array) {
    return reinterpret_cast<int32_t *>(arrays + offsets[array]);
  };
  int32_t *tokenIds = at(tokens), *tokenPositions = at(positions);
  auto *slots = reinterpret_cast<int64_t *>(at(slotMapping));
  int32_t *starts = at(cuSeqlens), *lengths = at(kvLens);
  int32_t *indices = at(logitsIndices);

  int64_t rows = batch.numTokens();
  std::copy_n(batch.tokens, rows, tokenIds);
  std::fill_n(tokenIds + rows, rowsPad - rows, 0);
  std::fill_n(tokenPositions + rows, rowsPad - rows, 0);
  std::fill_n(slots + rows, rowsPad - rows, int64_t(-1));
  std::copy(batch.cuSeqlens.begin(), batch.cuSeqlens.end(), starts);
  longest = 0;
  for (int64_t i = 0; i < numSequences; ++i) {
    int32_t sequence = batch.sequences[i];
    int64_t past = cache.length(sequence);
    for (int32_t row = starts[i]; row < starts[i + 1]; ++row) {
      int64_t position = past + row - starts[i];
      tokenPositions[row] = static_cast<int32_t>(position);
      slots[row] = cache.slot(sequence, position);
    }
    lengths[i] = static_cast<int32_t>(past + starts[i + 1] - starts[i]);
    longest = std::max<int64_t>(longest, lengths[i]);
    const std::vector<int32_t> &blocks = cache.blocks(sequence);
    int32_t *table = at(blockTable) + i * blockTableStride;
    std::fill(std::copy(blocks.begin(), blocks.end(), table),
              table + blockTableStride, -1);
  }
  int64_t logitRows = batch.numLogitRows();
  for (int64_t row = 0; row < logitRows; ++row)
    indices[row] =
        static_cast<int32_t>(batch.allLogits ? row : starts[row + 1] - 1);
  std::fill_n(indices + logitRows, logitRowsPad - logitRows, 0);
}

void BatchMetadata::appendWords(std::vector<uint64_t> &words) const {
  words.insert(
      words.end(),
      {static_cast<uint64_t>(rowsPad), static_cast<uint64_t>(numSequences),
       static_cast<uint64_t>(logitRowsPad), address(tokens), address(positions),
       address(slotMapping), address(cuSeqlens), address(kvLens),
       address(blockTable), static_cast<uint64_t>(blockTableStride),
       address(logitsIndices)});
}

void BatchMetadata::appendRanges(std::vector<MemoryRange> &ranges) const {
  static constexpr const char *names[numArrays] = {
      "tokens",  "positions",   "slot_mapping",  "cu_seqlens",
      "kv_lens", "block_table", "logits_indices"};
  for (int array = 0; array < numArrays; ++array)
    ranges.push_back({address(Array(array)), sizes[array], names[array],
                      /*writable=*/false});
}
