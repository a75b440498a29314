// What the recording driver reads in a code image.
#ifndef PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBIMAGE_H
#define PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBIMAGE_H

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace prefill::test::stub {

struct EntryPoint {
  std::vector<uint64_t> parameterBytes;
  int maxThreads = 1024;
  int64_t staticShared = 0;
};

struct Image {
  bool isPtx = false;
  int chip = 0;
  std::map<std::string, EntryPoint> entries;
};

/// A cubin of ptxas, or PTX text with a zero at its end. nullopt when it is
/// neither.
std::optional<Image> parseImage(const void *data);

} // namespace prefill::test::stub

#endif // PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBIMAGE_H
