#include "core/ContentHash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace prefill::rt;

uint64_t prefill::rt::contentHash(const void *data, size_t size) {
  return XXH3_64bits(data, size);
}

struct FieldHasher::State {
  XXH3_state_t xxh;
};

FieldHasher::FieldHasher() : state(std::make_unique<State>()) {
  XXH3_128bits_reset(&state->xxh);
}

FieldHasher::~FieldHasher() = default;

void FieldHasher::add(const void *data, size_t size) {
  add(static_cast<int64_t>(size));
  if (size)
    XXH3_128bits_update(&state->xxh, data, size);
}

void FieldHasher::add(std::string_view text) { add(text.data(), text.size()); }

void FieldHasher::add(int64_t number) {
  XXH3_128bits_update(&state->xxh, &number, sizeof number);
}

Hash128 FieldHasher::digest() const {
  XXH128_hash_t hash = XXH3_128bits_digest(&state->xxh);
  return {hash.low64, hash.high64};
}
