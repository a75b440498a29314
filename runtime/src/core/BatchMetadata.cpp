#include "core/BatchMetadata.h"

#include <algorithm>

using namespace prefill::rt;

Result<void> BatchMetadata::build(const Batch &batch, const KVCache &cache,
                                  int64_t rowsPad, int64_t logitRowsPad,
                                  Allocator &allocator) {
  this->rowsPad = rowsPad;
  this->logitRowsPad = logitRowsPad;
  numSequences = batch.numSequences();
  blockTableStride = 1;
  for (int32_t sequence : batch.sequences)
    blockTableStride = std::max<int64_t>(
        blockTableStride, static_cast<int64_t>(cache.blocks(sequence).size()));

  uint64_t bytes = 0;
  auto place = [&](uint64_t size) {
    uint64_t offset = bytes;
    bytes += (size + 63) / 64 * 64;
    return offset;
  };
  uint64_t offsets[] = {
      place(rowsPad * 4),      place(rowsPad * 4),
      place(rowsPad * 8),      place((numSequences + 1) * 4),
      place(numSequences * 4), place(numSequences * blockTableStride * 4),
      place(logitRowsPad * 4),
  };
  if (bytes > storage.size()) {
    storage = Allocation();
    Result<Allocation> grown =
        allocator.allocate(MemoryClass::temporaries, bytes, "batch metadata");
    if (!grown)
      return grown.takeError();
    storage = std::move(*grown);
  }
  auto at = [&](int array) {
    return reinterpret_cast<int32_t *>(storage.data() + offsets[array]);
  };
  tokens = at(0);
  positions = at(1);
  slotMapping = reinterpret_cast<int64_t *>(at(2));
  cuSeqlens = at(3);
  kvLens = at(4);
  blockTable = at(5);
  logitsIndices = at(6);

  int64_t rows = batch.numTokens();
  std::copy_n(batch.tokens, rows, tokens);
  std::fill_n(tokens + rows, rowsPad - rows, 0);
  std::fill_n(positions + rows, rowsPad - rows, 0);
  std::fill_n(slotMapping + rows, rowsPad - rows, int64_t(-1));
  std::copy(batch.cuSeqlens.begin(), batch.cuSeqlens.end(), cuSeqlens);
  longest = 0;
  for (int64_t i = 0; i < numSequences; ++i) {
    int32_t sequence = batch.sequences[i];
    int64_t past = cache.length(sequence);
    for (int32_t row = cuSeqlens[i]; row < cuSeqlens[i + 1]; ++row) {
      int64_t position = past + row - cuSeqlens[i];
      positions[row] = static_cast<int32_t>(position);
      slotMapping[row] = cache.slot(sequence, position);
    }
    kvLens[i] = static_cast<int32_t>(past + cuSeqlens[i + 1] - cuSeqlens[i]);
    longest = std::max<int64_t>(longest, kvLens[i]);
    const std::vector<int32_t> &blocks = cache.blocks(sequence);
    int32_t *table = blockTable + i * blockTableStride;
    std::fill(std::copy(blocks.begin(), blocks.end(), table),
              table + blockTableStride, -1);
  }
  int64_t logitRows = batch.numLogitRows();
  for (int64_t row = 0; row < logitRows; ++row)
    logitsIndices[row] =
        static_cast<int32_t>(batch.allLogits ? row : cuSeqlens[row + 1] - 1);
  std::fill_n(logitsIndices + logitRows, logitRowsPad - logitRows, 0);
  return {};
}

void BatchMetadata::appendWords(std::vector<uint64_t> &words) const {
  auto pointer = [](const void *address) {
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(address));
  };
  words.insert(
      words.end(),
      {static_cast<uint64_t>(rowsPad), static_cast<uint64_t>(numSequences),
       static_cast<uint64_t>(logitRowsPad), pointer(tokens), pointer(positions),
       pointer(slotMapping), pointer(cuSeqlens), pointer(kvLens),
       pointer(blockTable), static_cast<uint64_t>(blockTableStride),
       pointer(logitsIndices)});
}
