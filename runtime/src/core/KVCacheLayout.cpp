#include "core/KVCacheLayout.h"
#include "core/ModuleFile.h"

#include <algorithm>
#include <string>

using namespace prefill;
using namespace prefill::rt;

/// Tokens of a page of paged_vnni, and features of a panel of its values.
static constexpr int64_t vnniPageTokens = 32;

const char *prefill::rt::stringify(module::KVLayout layout) {
  switch (layout) {
  case module::KVLayout::contiguous:
    return "contiguous";
  case module::KVLayout::head_major:
    return "head_major";
  case module::KVLayout::paged_nhd:
    return "paged_nhd";
  case module::KVLayout::paged_vnni:
    return "paged_vnni";
  }
  return "?";
}

Result<void> prefill::rt::verifyKVCacheSpec(const module::KVCacheSpec &spec,
                                            int64_t maxSeq) {
  auto fail = [](const char *field, int64_t value,
                 const std::string &expected) {
    return invalidModule(std::string("kv_cache ") + field + " is " +
                         std::to_string(value) + ", expected " + expected);
  };
  if (spec.layout() < module::KVLayout::MIN ||
      spec.layout() > module::KVLayout::MAX)
    return fail("layout", int64_t(spec.layout()),
                "contiguous, head_major, paged_nhd or paged_vnni");
  if (spec.dtype() != module::DType::f32 &&
      spec.dtype() != module::DType::bf16 && spec.dtype() != module::DType::f16)
    return fail("dtype", int64_t(spec.dtype()), "f32, bf16 or f16");
  constexpr int64_t limit = 65536;
  for (auto [name, value] : {std::pair{"num_kv_heads", spec.num_kv_heads()},
                             {"head_dim_qk", spec.head_dim_qk()},
                             {"head_dim_v", spec.head_dim_v()}})
    if (value < 1 || value > limit)
      return fail(name, value, "1 to " + std::to_string(limit));
  if (spec.layout() == module::KVLayout::paged_nhd) {
    if (spec.block_size() < 1 || spec.block_size() > limit)
      return fail("block_size", spec.block_size(),
                  "1 to " + std::to_string(limit) + " for paged_nhd");
  } else if (spec.layout() == module::KVLayout::paged_vnni) {
    if (spec.block_size() != vnniPageTokens)
      return fail("block_size", spec.block_size(),
                  std::to_string(vnniPageTokens) + " for paged_vnni");
    if (spec.dtype() == module::DType::f16)
      return fail("dtype", int64_t(spec.dtype()), "f32 or bf16 for paged_vnni");
  } else if (spec.block_size() != maxSeq) {
    return fail("block_size", spec.block_size(),
                "max_seq " + std::to_string(maxSeq) + " for " +
                    stringify(spec.layout()));
  }
  return {};
}

Result<KVCacheLayout> KVCacheLayout::create(const module::KVCacheSpec &spec,
                                            int64_t numSequences,
                                            int64_t capacity, int64_t numLayers,
                                            int64_t featureUnit) {
  KVCacheLayout layout;
  bool vnni = spec.layout() == module::KVLayout::paged_vnni;
  bool paged = spec.layout() == module::KVLayout::paged_nhd || vnni;
  int64_t heads = spec.num_kv_heads();
  layout.keyFeatures = spec.head_dim_qk();
  layout.valueFeatures = spec.head_dim_v();
  auto roundUp = [](int64_t size, int64_t unit) {
    return (size + unit - 1) / unit * unit;
  };
  if (vnni) {
    layout.pagePack = spec.dtype() == module::DType::bf16 ? 2 : 1;
    layout.keyFeatures = roundUp(layout.keyFeatures, layout.pagePack);
    layout.valueFeatures = roundUp(layout.valueFeatures, vnniPageTokens);
  }
  int64_t headDim =
      roundUp(std::max(layout.keyFeatures, layout.valueFeatures), featureUnit);
  layout.blockTokens = paged ? spec.block_size() : capacity;
  layout.blocksPerSequence =
      paged ? (capacity + spec.block_size() - 1) / spec.block_size() : 1;

  // All factors are below 2^32; the product of all is checked once.
  int64_t blockElements = layout.blockTokens * heads; // < 2^47
  bool overflow =
      __builtin_mul_overflow(blockElements, headDim, &blockElements);
  overflow |= __builtin_mul_overflow(layout.blocksPerSequence, numSequences,
                                     &layout.numBlocks);
  int64_t elements;
  overflow |=
      __builtin_mul_overflow(blockElements, layout.numBlocks, &elements);
  overflow |= __builtin_mul_overflow(elements, 2, &layout.layerElements);
  overflow |=
      __builtin_mul_overflow(layout.layerElements, numLayers, &elements);
  if (overflow || elements > int64_t(1) << 59 || layout.numBlocks > INT32_MAX)
    return Error{ErrorCode::outOfMemory,
                 "out of memory: class kv_cache: " +
                     std::to_string(numSequences) + " sequences of " +
                     std::to_string(capacity) + " tokens overflow 64 bits"};

  bool headMajor = spec.layout() == module::KVLayout::head_major;
  layout.tokenStride = headMajor ? headDim : heads * headDim;
  layout.headStride =
      headMajor || vnni ? layout.blockTokens * headDim : headDim;
  if (vnni)
    layout.tokenStride = layout.pagePack; // of the first p features of a key
  layout.blockStride = paged ? 2 * blockElements : blockElements;
  layout.valueBase = paged ? blockElements : layout.layerElements / 2;
  return layout;
}

int64_t KVCacheLayout::keyOffset(int64_t block, int64_t token, int64_t head,
                                 int64_t feature) const {
  int64_t offset =
      block * blockStride + head * headStride + token * tokenStride;
  if (!pagePack)
    return offset + feature;
  return offset + feature / pagePack * vnniPageTokens * pagePack +
         feature % pagePack;
}

int64_t KVCacheLayout::valueOffset(int64_t block, int64_t token, int64_t head,
                                   int64_t feature) const {
  int64_t offset = block * blockStride + head * headStride;
  if (!pagePack)
    return offset + token * tokenStride + feature;
  return offset + feature / vnniPageTokens * vnniPageTokens * vnniPageTokens +
         token / pagePack * vnniPageTokens * pagePack +
         feature % vnniPageTokens * pagePack + token % pagePack;
}
