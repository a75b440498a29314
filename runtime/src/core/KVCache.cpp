#include "core/KVCache.h"
#include "prefill/checkpoint/FloatConversion.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

using namespace prefill;
using namespace prefill::rt;

Result<std::unique_ptr<KVCache>> KVCache::create(const LoadedModule &module,
                                                 int64_t numSequences,
                                                 int64_t capacity) {
  const module::Module &file = module.file();
  constexpr int64_t maxSequences = 1 << 20;
  if (numSequences < 1 || numSequences > maxSequences)
    return Error{ErrorCode::invalidArgument,
                 "number of sequences is " + std::to_string(numSequences) +
                     ", expected 1 to " + std::to_string(maxSequences)};
  if (capacity == 0)
    capacity = file.max_seq();
  if (capacity < 1 || capacity > file.max_seq())
    return Error{ErrorCode::invalidArgument,
                 "KV cache capacity is " + std::to_string(capacity) +
                     " tokens, expected 1 to the module's max_seq " +
                     std::to_string(file.max_seq())};
  Result<KVCacheLayout> layout = KVCacheLayout::create(
      *file.kv_cache(), numSequences, capacity, file.num_layers(),
      module.device().backend().featureUnit());
  if (!layout)
    return layout.takeError();

  std::unique_ptr<KVCache> cache(new KVCache(module));
  cache->shape = *layout;
  cache->tokensPerSequence = capacity;
  cache->elementBytes = byteSize(file.kv_cache()->dtype());
  uint64_t bytes = static_cast<uint64_t>(layout->layerElements) *
                   file.num_layers() * cache->elementBytes;
  Result<Allocation> storage = cache->allocator.allocate(
      MemoryClass::kvCache, bytes,
      std::to_string(numSequences) + " sequences of " +
          std::to_string(capacity) + " tokens");
  if (!storage)
    return storage.takeError();
  cache->storage = std::move(*storage);
  cache->lengths.resize(numSequences);
  cache->blockTables.resize(numSequences);
  for (int64_t block = layout->numBlocks - 1; block >= 0; --block)
    cache->freeBlocks.push_back(static_cast<int32_t>(block));
  return cache;
}

int64_t KVCache::blockTokens() const {
  return owner.file().kv_cache()->block_size();
}

void KVCache::reserve(int64_t sequence, int64_t length) {
  // numBlocks = numSequences * blocksPerSequence: the list cannot run dry.
  std::vector<int32_t> &table = blockTables[sequence];
  int64_t needed = (length + blockTokens() - 1) / blockTokens();
  while (static_cast<int64_t>(table.size()) < needed) {
    table.push_back(freeBlocks.back());
    freeBlocks.pop_back();
  }
}

int64_t KVCache::slot(int64_t sequence, int64_t position) const {
  int64_t block = blockTables[sequence][position / blockTokens()];
  return block * blockTokens() + position % blockTokens();
}

Result<void> KVCache::checkSequence(int64_t sequence) const {
  if (sequence >= 0 && sequence < numSequences())
    return {};
  return Error{ErrorCode::invalidArgument,
               "sequence " + std::to_string(sequence) + ", but the cache has " +
                   std::to_string(numSequences())};
}

Result<void> KVCache::truncate(int64_t sequence, int64_t length) {
  if (Result<void> ok = checkSequence(sequence); !ok)
    return ok;
  if (length < 0 || length > lengths[sequence])
    return Error{ErrorCode::invalidArgument,
                 "truncating sequence " + std::to_string(sequence) + " to " +
                     std::to_string(length) + " tokens, expected 0 to its " +
                     std::to_string(lengths[sequence])};
  std::vector<int32_t> &table = blockTables[sequence];
  size_t kept = (length + blockTokens() - 1) / blockTokens();
  while (table.size() > kept) {
    freeBlocks.push_back(table.back());
    table.pop_back();
  }
  lengths[sequence] = length;
  return {};
}

DeviceAddress KVCache::keys(int64_t layer) const {
  return storage.address() + layer * shape.layerElements * elementBytes;
}

DeviceAddress KVCache::values(int64_t layer) const {
  return keys(layer) + shape.valueBase * elementBytes;
}

std::vector<KVCache::Part> KVCache::parts(int64_t layer) const {
  uint64_t bytes = shape.layerElements * elementBytes;
  if (shape.valueBase * 2 != shape.layerElements)
    return {{"pages", keys(layer), bytes}};
  return {{"keys", keys(layer), bytes / 2},
          {"values", values(layer), bytes / 2}};
}

Result<std::byte *> KVCache::layerBytes(int64_t layer,
                                        std::vector<std::byte> &copy) const {
  if (allocator.memory().isHost())
    return static_cast<std::byte *>(hostPointer(keys(layer)));
  copy.resize(shape.layerElements * elementBytes);
  if (Result<void> ok =
          allocator.memory().download(copy.data(), keys(layer), copy.size());
      !ok)
    return ok.takeError();
  return copy.data();
}

Result<void> KVCache::read(int64_t layer, int64_t sequence, float *keys,
                           float *values) const {
  const module::Module &file = owner.file();
  if (Result<void> ok = checkSequence(sequence); !ok)
    return ok;
  if (layer < 0 || layer >= file.num_layers())
    return Error{ErrorCode::invalidArgument,
                 "layer " + std::to_string(layer) + ", but the module has " +
                     std::to_string(file.num_layers())};
  const module::KVCacheSpec &spec = *file.kv_cache();
  std::vector<std::byte> copy;
  Result<std::byte *> bytes = layerBytes(layer, copy);
  if (!bytes)
    return bytes.takeError();
  auto gather = [&](bool isKey, int64_t headDim, float *out) {
    const std::byte *base =
        *bytes + (isKey ? 0 : shape.valueBase * elementBytes);
    for (int64_t t = 0; t < lengths[sequence]; ++t) {
      int64_t block = blockTables[sequence][t / blockTokens()];
      for (int64_t h = 0; h < spec.num_kv_heads(); ++h) {
        int64_t token = t % blockTokens();
        for (int64_t d = 0; d < headDim; ++d) {
          const std::byte *from =
              base + (isKey ? shape.keyOffset(block, token, h, d)
                            : shape.valueOffset(block, token, h, d)) *
                         elementBytes;
          uint16_t bits;
          if (elementBytes == 4) {
            std::memcpy(out++, from, 4);
            continue;
          }
          std::memcpy(&bits, from, 2);
          *out++ = spec.dtype() == module::DType::bf16 ? bf16ToFloat(bits)
                                                       : f16ToFloat(bits);
        }
      }
    }
  };
  gather(true, spec.head_dim_qk(), keys);
  gather(false, spec.head_dim_v(), values);
  return {};
}

Result<void> KVCache::poisonUnused() {
  // Tokens that each block holds; what follows them is unused.
  std::vector<int64_t> held(shape.numBlocks);
  for (int64_t s = 0; s < numSequences(); ++s)
    for (size_t i = 0; i < blockTables[s].size(); ++i) {
      int64_t first = static_cast<int64_t>(i) * blockTokens();
      held[blockTables[s][i]] =
          std::clamp<int64_t>(lengths[s] - first, 0, shape.blockTokens);
    }
  const module::KVCacheSpec &spec = *owner.file().kv_cache();
  // All bits set is a NaN in f32, bf16 and f16.
  auto poison = [&](std::byte *base, int64_t offset, int64_t count) {
    std::memset(base + offset * elementBytes, 0xff, count * elementBytes);
  };
  std::vector<std::byte> copy;
  for (int64_t layer = 0; layer < owner.file().num_layers(); ++layer) {
    Result<std::byte *> keyBase = layerBytes(layer, copy);
    if (!keyBase)
      return keyBase.takeError();
    std::byte *valueBase = *keyBase + shape.valueBase * elementBytes;
    for (int64_t block = 0; block < shape.numBlocks; ++block)
      for (int64_t t = held[block]; t < shape.blockTokens; ++t)
        for (int64_t h = 0; h < spec.num_kv_heads(); ++h) {
          // Features of a page lie apart, those of other layouts together.
          int64_t run = shape.pagePack ? 1 : shape.keyFeatures;
          for (int64_t d = 0; d < shape.keyFeatures; d += run)
            poison(*keyBase, shape.keyOffset(block, t, h, d), run);
          run = shape.pagePack ? 1 : shape.valueFeatures;
          for (int64_t d = 0; d < shape.valueFeatures; d += run)
            poison(valueBase, shape.valueOffset(block, t, h, d), run);
        }
    if (!copy.empty())
      if (Result<void> ok =
              allocator.memory().upload(keys(layer), copy.data(), copy.size());
          !ok)
        return ok;
  }
  std::mt19937_64 random(freeBlocks.size());
  for (size_t i = freeBlocks.size(); i > 1; --i)
    std::swap(freeBlocks[i - 1], freeBlocks[random() % i]);
  return {};
}
