// Kernels of compiled modules on the recording driver, executed by the
// emulator.
#ifndef PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBEMULATION_H
#define PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBEMULATION_H

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace prefill::test::stub {

struct Block;

/// The emulation code of one plan.
class EmulatedImage {
public:
  /// Looks through the modules (*.pfm, below `directory`) for the plan that
  /// this image is code of, and takes the plan's emulation code. Null, with
  /// `problem`, where there is none.
  static std::shared_ptr<EmulatedImage>
  find(const std::string &directory, const void *image, std::string &problem);
  virtual ~EmulatedImage() = default;

  /// Empty, or what the kernel did wrong. It may touch the blocks.
  virtual std::string launch(const std::string &kernel,
                             const std::vector<uint64_t> &words,
                             unsigned blocks,
                             const std::map<uint64_t, Block> &memory) = 0;
};

} // namespace prefill::test::stub

#endif // PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBEMULATION_H
