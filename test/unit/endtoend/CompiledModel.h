// A golden checkpoint compiled by the tools and loaded through the C ABI.
#ifndef PREFILL_TEST_UNIT_ENDTOEND_COMPILEDMODEL_H
#define PREFILL_TEST_UNIT_ENDTOEND_COMPILEDMODEL_H

#include "prefill/runtime.h"
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace prefill::test {

using Logits = std::vector<float>;

struct Deleter {
  void operator()(prefill_device *p) const { prefill_device_destroy(p); }
  void operator()(prefill_module *p) const { prefill_module_destroy(p); }
  void operator()(prefill_weights *p) const { prefill_weights_destroy(p); }
  void operator()(prefill_kv_cache *p) const { prefill_kv_cache_destroy(p); }
  void operator()(prefill_session *p) const { prefill_session_destroy(p); }
};
template <typename T> using Handle = std::unique_ptr<T, Deleter>;

/// A cache and a session on it.
struct PromptRun {
  Handle<prefill_kv_cache> cache;
  Handle<prefill_session> session;

  /// Logits of the last token, f32 [vocab_size].
  Logits prefill(const std::vector<int32_t> &tokens);
  Logits decode(int32_t token);
  /// What the cache holds of sequence 0: keys, then values, of each layer.
  std::vector<float> stored() const;
  int64_t vocab = 0;
  int64_t layers = 0, tokenElements = 0;
};

/// Numbers of `prefill-opt --explain`, in bytes.
struct MemoryPrediction {
  uint64_t weights = 0, activationPerToken = 0, activationPerRow = 0,
           kvPerToken = 0, scratchPerThread = 0;
};

/// One module with weights on one device. Members are destroyed in reverse
/// order, as the ABI wants it.
class CompiledModel {
public:
  /// Compiles test/golden/`name` for the device, a cpu or an emulated chip
  /// (once for each set of arguments; later calls take the file of the first)
  /// and loads it. Throws on failure, with the tool's or the runtime's message.
  /// `dtype` is f32, bf16, f16, or f32+int8, bf16+int8: with weights of int8.
  /// `deterministic`: attention's keys are never split.
  CompiledModel(const std::string &name, const std::string &dtype,
                const std::string &layout = "contiguous",
                const std::string &device = "cpu", int threads = 2,
                uint64_t emulationSeed = 0, bool deterministic = false);

  PromptRun run(int64_t sequences = 1) const;
  /// The first `count` tokens of the model's fixed list.
  std::vector<int32_t> tokens(int64_t count) const;
  /// transformers' f32 logits for a prompt of `count` tokens; `count` is one of
  /// the golden lengths.
  Logits golden(int64_t count) const;
  /// Relative error against `golden` that `dtype` is good for: transformers'
  /// own in bf16 and f16, 0 in f32; with "+int8" that of quantizing too, as
  /// python/numpy_decoder.py has it. The two add like independent errors.
  double goldenError(const std::string &dtype, int64_t count) const;
  /// Logits of every row of a prompt of `count` tokens, by the reference in
  /// f64.
  std::vector<Logits> referenceRows(int64_t count) const;
  /// Query rows of the tiles that attention has in any launch.
  std::set<int64_t> attentionBlocks() const;
  MemoryPrediction predictedMemory() const;
  const prefill_module_info &info() const { return moduleInfo; }
  /// The .pfm.
  const std::string &file() const { return moduleFile; }
  /// The names of the plan's launches, with their layers.
  std::vector<prefill_launch_info> launches() const;
  /// The instruction set that it runs with, or the chip.
  std::string variant() const { return prefill_module_variant(module.get()); }

private:
  std::string directory, modelFile, moduleFile, explanation;
  Handle<prefill_device> device;
  Handle<prefill_module> module;
  Handle<prefill_weights> weights;
  prefill_module_info moduleInfo{};
};

/// Norm of the difference over the norm of `expected`.
double relativeError(const Logits &actual, const Logits &expected);

/// Throws std::runtime_error with the runtime's message unless `status` is OK.
void check(prefill_status status, const char *what);

} // namespace prefill::test

#endif // PREFILL_TEST_UNIT_ENDTOEND_COMPILEDMODEL_H
