// One run of prefill-run, from the module to the report.
#ifndef PREFILL_TOOLS_PREFILLRUN_RUN_H
#define PREFILL_TOOLS_PREFILLRUN_RUN_H

#include "Options.h"
#include "OutputFile.h"
#include "Report.h"
#include "prefill/runtime.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace prefill::run {

/// Owns a handle of the C ABI.
template <typename T, void (*destroy)(T *)> struct HandleDeleter {
  void operator()(T *handle) const { destroy(handle); }
};
template <typename T, void (*destroy)(T *)>
using Handle = std::unique_ptr<T, HandleDeleter<T, destroy>>;

class Run {
public:
  /// `options` must outlive the run.
  explicit Run(const Options &options)
      : options(options), created(Clock::now()) {}

  /// Reports on standard output. Files are written when all went well.
  rt::Result<void> execute();

private:
  rt::Result<void> loadModule();
  /// Everything about the prompt is checked before weights are loaded.
  rt::Result<void> readPrompt();
  rt::Result<void> readTokens(const std::string &what);
  rt::Result<void> openOutputs();
  rt::Result<void> loadWeights();
  /// With the checkpoint's cache; a line on standard error when a file of it
  /// was there and is of no use.
  rt::Result<void> loadCachedWeights(prefill_weights **out);
  rt::Result<void> prefill();
  rt::Result<void> decode();
  rt::Result<void> writeOutputs();
  /// Never fails: without a cache the next start takes longer.
  rt::Result<void> saveWeightsCache();
  rt::Result<void> writeCache();
  /// --describe and --extract-code.
  rt::Result<void> printModule(rt::Result<void> loaded);
  /// The tokens that were decoded, or the likeliest next ones.
  std::string continuation() const;

  /// One call of the session, recorded.
  rt::Result<void> call(const std::string &name, const int32_t *first,
                        int64_t count, bool allLogits, float *out);
  /// Nanoseconds since the first call.
  uint64_t now() const;

  using Clock = std::chrono::steady_clock;

  const Options &options;
  // Destroyed from the last to the first, as the C ABI asks for.
  Handle<prefill_device, prefill_device_destroy> device;
  Handle<prefill_module, prefill_module_destroy> module;
  Handle<prefill_weights, prefill_weights_destroy> weights;
  Handle<prefill_kv_cache, prefill_kv_cache_destroy> cache;
  Handle<prefill_session, prefill_session_destroy> session;
  std::optional<OutputFile> logitsFile, kvFile, profileFile;
  std::vector<int32_t> tokens;
  int64_t capacity = 0; ///< tokens that the cache has room for
  std::vector<float> logits;
  RunRecord record;
  Clock::time_point created, start;
};

} // namespace prefill::run

#endif // PREFILL_TOOLS_PREFILLRUN_RUN_H
