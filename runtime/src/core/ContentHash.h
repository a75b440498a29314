// Hashes that tell contents apart. They find accidents and changes; they are no
// defence against somebody who looks for a collision.
#ifndef PREFILL_RUNTIME_CORE_CONTENTHASH_H
#define PREFILL_RUNTIME_CORE_CONTENTHASH_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace prefill::rt {

struct Hash128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Hash128 &) const = default;
};

/// XXH3 of 64 bits (xxhash.com): one core hashes as fast as memory delivers.
uint64_t contentHash(const void *data, size_t size);

/// XXH3 of 128 bits over a sequence of fields. Every field goes in with its
/// length, so that two sequences never run together to the same bytes.
class FieldHasher {
public:
  FieldHasher();
  ~FieldHasher();

  void add(std::string_view text);
  void add(int64_t number);
  void add(const void *data, size_t size);
  Hash128 digest() const;

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_CONTENTHASH_H
