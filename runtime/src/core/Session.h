// Runs the plan of a module over tokens.
#ifndef PREFILL_RUNTIME_CORE_SESSION_H
#define PREFILL_RUNTIME_CORE_SESSION_H

#include "core/ActivationArena.h"
#include "core/BatchMetadata.h"
#include "core/KVCache.h"
#include "core/ResidentWeights.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace prefill::rt {

class Session {
public:
  static Result<std::unique_ptr<Session>>
  create(LoadedModule &module, ResidentWeights &weights, KVCache &cache);

  /// prefill_session_prefill_batch of prefill/runtime.h; with allLogits logits
  /// is f32 [cuSeqlens[numSequences], vocab_size]. On failure the cache holds
  /// what it held before. All memory of a call is taken before its first
  /// launch.
  Result<void> run(const int32_t *tokens, const int32_t *cuSeqlens,
                   const int32_t *sequences, int64_t numSequences,
                   bool allLogits, float *logits);

  /// For harnesses that time single launches: checks a call and lays out its
  /// buffers as run() does, but runs no launch. One row of logits for each
  /// sequence.
  Result<void> stage(const int32_t *tokens, const int32_t *cuSeqlens,
                     const int32_t *sequences, int64_t numSequences);
  /// Runs one launch of the call that was staged last. Its input is what the
  /// buffers hold: run the launches before it first, in order. The cache's
  /// lengths stay what they are. `index` is less than the number of launches.
  void runStaged(uint32_t index);

  uint64_t memory(MemoryClass memoryClass) const;
  /// Of the last call; the padding's work is not counted.
  uint64_t flops() const { return lastFlops; }

  struct LaunchTime {
    uint64_t startNs, durationNs;
  };
  /// Of the last call, indexed as the module's launches.
  const std::vector<LaunchTime> &launchTimes() const { return times; }

  void setPoison(bool enabled);

private:
  Session(LoadedModule &module, ResidentWeights &weights, KVCache &cache)
      : module(module), weights(weights), cache(cache) {}

  Result<Batch> check(const int32_t *tokens, const int32_t *cuSeqlens,
                      const int32_t *sequences, int64_t numSequences,
                      bool allLogits, const float *logits) const;
  Result<void> prepare(const Batch &batch);
  Result<void> prepareScratch();
  Result<void> prepareScore();
  void expandArguments(const module::Launch &launch,
                       std::vector<uint64_t> &words);
  void launch(const module::Launch &launch, const Batch &batch,
              std::vector<uint64_t> &words);
  Result<void> findDamage(uint32_t launchIndex) const;
  uint64_t countFlops(const Batch &batch) const;

  LoadedModule &module;
  ResidentWeights &weights;
  KVCache &cache;
  Allocator allocator;
  ActivationArena arena;
  BatchMetadata metadata;
  Allocation scratch; ///< scratchStride bytes for each thread
  uint64_t scratchStride = 0;
  Allocation score;        ///< f32 [num_q_heads, M_pad, max_kv]
  uint64_t scoreBytes = 0; ///< of it in use by this call
  int64_t rowsPad = 0, logitRowsPad = 0;
  bool poison = false;
  std::optional<Batch> staged;
  uint64_t lastFlops = 0;
  std::vector<LaunchTime> times;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_SESSION_H
