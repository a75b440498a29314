// A tiny decoder in a module file, with the kernels of TestKernels.cpp, and the
// same decoder in a few plain loops to compare with.
#ifndef PREFILL_TEST_UNIT_RUNTIME_TESTMODEL_H
#define PREFILL_TEST_UNIT_RUNTIME_TESTMODEL_H

#include "prefill/module_generated.h"
#include "prefill/runtime.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace prefill::test {

inline constexpr int64_t testHidden = 32, testQHeads = 4, testKVHeads = 2,
                         testHeadDim = 8, testVocab = 13, testLayers = 2,
                         testMaxSeq = 64;

struct TestModelOptions {
  module::KVLayout layout =
      module::KVLayout::contiguous; ///< paged: blocks of 4
  std::string linearKernel = "tk_linear";
  bool unfusedAttention = false; ///< contiguous layouts only
  std::string variant = "avx2";
  /// Calls of at most so many tokens have a schedule of their own: the same
  /// kernels, other buckets and launch names, buffers at other indices and
  /// places. 0: there is none.
  int64_t shortRows = 0;
};

/// The tables, for tests that damage them.
module::ModuleT makeTestModule(const TestModelOptions &options = {});
/// The bytes of a .pfm.
std::vector<uint8_t> serialize(const module::ModuleT &file);

/// f32 [tokens.size(), testVocab]: the logits of every position, with the
/// weights of prefill_weights_random(seed).
std::vector<float> referenceLogits(const std::vector<int32_t> &tokens,
                                   uint64_t seed);

/// A checkpoint directory's model.safetensors with the weights of
/// prefill_weights_random(seed); `edit` may change the list of tensors before
/// it is written.
struct TestTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};
std::string checkpointFile(
    uint64_t seed,
    const std::function<void(std::vector<TestTensor> &)> &edit = nullptr);
/// The config.json that goes with it.
std::string checkpointConfig();

/// Everything that a run needs, through the C ABI. Failures of the setup are
/// GTest failures.
class TestRun {
public:
  explicit TestRun(const TestModelOptions &options = {}, int threads = 1,
                   int64_t sequences = 1, int64_t capacity = 0,
                   uint64_t seed = 7);
  TestRun(const TestRun &) = delete;
  TestRun &operator=(const TestRun &) = delete;
  ~TestRun();

  /// Last row, or all rows. Fails the test when the call fails.
  std::vector<float> prefill(const std::vector<int32_t> &tokens,
                             bool allLogits = false);

  prefill_device *device = nullptr;
  prefill_module *module = nullptr;
  prefill_weights *weights = nullptr;
  prefill_kv_cache *cache = nullptr;
  prefill_session *session = nullptr;
};

} // namespace prefill::test

#endif // PREFILL_TEST_UNIT_RUNTIME_TESTMODEL_H
