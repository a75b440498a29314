// What the recording driver runs where tests want to see an effect.
#include <cstdint>

#define KERNEL extern "C" __attribute__((visibility("default"))) void

KERNEL stub_add(const uint64_t *words, int64_t, int64_t, void *) {
  *reinterpret_cast<int64_t *>(words[0]) += static_cast<int64_t>(words[1]);
}
KERNEL stub_double(const uint64_t *words, int64_t, int64_t, void *) {
  *reinterpret_cast<int64_t *>(words[0]) *= 2;
}
