// Runs the schedules of a module over tokens.
#ifndef PREFILL_RUNTIME_CORE_SESSION_H
#define PREFILL_RUNTIME_CORE_SESSION_H

#include "core/ActivationArena.h"
#include "core/Backend.h"
#include "core/BatchMetadata.h"
#include "core/KVCache.h"
#include "core/ResidentWeights.h"
#include "core/ScheduleChoice.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
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
  /// lengths stay what they are. `index` is less than the number of launches of
  /// schedule().
  Result<void> runStaged(uint32_t index);

  const module::Plan &plan() const { return table; }
  /// That of the last call that came to its launches or was staged, before any
  /// call that for any number of rows.
  const module::Schedule &schedule() const { return *chosen; }

  uint64_t memory(MemoryClass memoryClass) const;
  /// Of the last call; the padding's work is not counted.
  uint64_t flops() const { return lastFlops; }

  using LaunchTime = Stream::LaunchTime;
  /// Of the last call, indexed as the schedule's launches.
  const std::vector<LaunchTime> &launchTimes() const { return times; }
  /// The last call went well, but its launches were not timed one by one.
  bool ranUntimed() const { return untimed; }

  /// Stream::setTiming.
  void setTiming(bool enabled) { stream->setTiming(enabled); }

  void setPoison(bool enabled);

  /// Stream::counters of the last call.
  std::string counters() const { return stream->counters(); }

private:
  Session(LoadedModule &module, ResidentWeights &weights, KVCache &cache)
      : module(module), table(module.plan()), chosen(&lastSchedule(table)),
        weights(weights), cache(cache),
        allocator(module.device().backend().memory()) {}

  Result<Batch> check(const int32_t *tokens, const int32_t *cuSeqlens,
                      const int32_t *sequences, int64_t numSequences,
                      bool allLogits, const float *logits) const;
  Result<void> prepare(const Batch &batch);
  Result<void> prepareScore();
  void expandArguments(const module::Launch &launch);
  void listRanges(const module::Launch &launch);
  Result<void> launch(uint32_t index, const Batch &batch);
  Result<void> findDamage(uint32_t launchIndex) const;
  /// Copies `rows` rows of the logits buffer to rows of vocab_size without
  /// gaps.
  Result<void> downloadLogits(float *logits, int64_t rows) const;
  /// "launch 3, layer 0".
  std::string describe(uint32_t launchIndex) const;
  uint64_t countFlops(const Batch &batch) const;

  LoadedModule &module;
  const module::Plan &table; ///< of the module
  const module::Schedule *chosen;
  ResidentWeights &weights;
  KVCache &cache;
  Allocator allocator;     ///< of the device's memory
  Allocator hostAllocator; ///< of this machine's, where that is another
  std::unique_ptr<Stream> stream;
  ActivationArena arena;
  BatchMetadata metadata;
  Allocation score;        ///< f32 [num_q_heads, M_pad, max_kv]
  uint64_t scoreBytes = 0; ///< of it in use by this call
  int64_t rowsPad = 0, logitRowsPad = 0;
  bool poison = false;
  std::optional<Batch> staged;
  uint64_t lastFlops = 0;
  // Of the launch at hand.
  std::vector<uint64_t> words;
  std::vector<MemoryRange> ranges;
  std::vector<LaunchTime> times;
  bool untimed = false;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_SESSION_H
