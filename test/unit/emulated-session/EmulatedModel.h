//===- EmulatedModel.h - a tiny model with hand-written CUDA kernels ------===//
// Its logits are sums over a sequence of the embeddings of its tokens, which
// the kernels take from the keys in the cache: enough to show what a session
// gives to kernels and gets from them. The values are twice the keys.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TEST_EMULATEDSESSION_EMULATEDMODEL_H
#define PREFILL_TEST_EMULATEDSESSION_EMULATEDMODEL_H

#include "prefill/module_generated.h"
#include "prefill/runtime.h"

#include <cstdint>
#include <string>
#include <vector>

namespace prefill_test {

/// The width of everything is that of a warp.
inline constexpr int64_t modelWidth = 32, modelVocab = 11, modelHeads = 2,
                         modelHeadDim = 16, modelMaxSeq = 40;

/// What a kernel does wrong.
enum class Fault { none, writesBehindBuffer, writesWeight, needsArithmetic };

struct EmulatedModelOptions {
  prefill::module::KVLayout layout = prefill::module::KVLayout::contiguous;
  Fault fault = Fault::none;
  int64_t vocab = modelVocab;
};

/// The kernels in the LLVM and NVVM dialects.
std::string kernelText(const EmulatedModelOptions &options);

prefill::module::ModuleT
makeEmulatedModule(const EmulatedModelOptions &options);
/// The bytes of a .pfm.
std::vector<uint8_t> serialize(const prefill::module::ModuleT &file);

/// f32 [modelWidth]: what a session must answer for one sequence.
std::vector<float> expectedLogits(const std::vector<int32_t> &tokens,
                                  uint64_t seed);

/// Through the C ABI. `error` is the first one, "" when all went well.
class EmulatedRun {
public:
  struct Device {
    std::string name = "cuda-emu:sm_80";
    int threads = 2;
    uint64_t seed = 0;
    bool countOnly = false;
  };
  explicit EmulatedRun(const prefill::module::ModuleT &file,
                       int64_t sequences = 1);
  EmulatedRun(const prefill::module::ModuleT &file, int64_t sequences,
              const Device &device);
  EmulatedRun(const EmulatedRun &) = delete;
  EmulatedRun &operator=(const EmulatedRun &) = delete;
  ~EmulatedRun();

  std::vector<float> prefill(const std::vector<int32_t> &tokens);
  /// The JSON of the last call.
  std::string counters();

  std::string error;
  prefill_device *device = nullptr;
  prefill_module *module = nullptr;
  prefill_weights *weights = nullptr;
  prefill_kv_cache *cache = nullptr;
  prefill_session *session = nullptr;
  static constexpr uint64_t weightSeed = 7;

private:
  bool good(prefill_status status);
};

} // namespace prefill_test

#endif // PREFILL_TEST_EMULATEDSESSION_EMULATEDMODEL_H
