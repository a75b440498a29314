// Where the weight program gets the tensors that it names: a checkpoint or a
// seed.
#ifndef PREFILL_RUNTIME_CORE_TENSORSOURCE_H
#define PREFILL_RUNTIME_CORE_TENSORSOURCE_H

#include "core/ModuleFile.h"
#include "prefill/checkpoint/Result.h"
#include "prefill/checkpoint/Safetensors.h"

#include <cstdint>
#include <memory>
#include <string>

namespace prefill::rt {

/// One tensor, read as f32.
class TensorReader {
public:
  virtual ~TensorReader() = default;
  /// `count` elements from row-major element `begin` on. Thread safe.
  virtual void read(uint64_t begin, uint64_t count, float *out) const = 0;
};

class TensorSource {
public:
  virtual ~TensorSource() = default;
  /// The tensor must exist with exactly this shape and a float dtype.
  virtual Result<std::unique_ptr<TensorReader>>
  find(const std::string &name, const std::vector<int64_t> &shape) const = 0;
};

/// F32, BF16 and F16 tensors of a checkpoint.
class CheckpointSource : public TensorSource {
public:
  /// Opens `directory` and checks that config.json agrees with the module where
  /// it states model_type or a size.
  static Result<CheckpointSource> open(const std::string &directory,
                                       const module::Module &file);
  /// Checks that no tensor is left that the plan does not read. Harmless
  /// leftovers are `*.rotary_emb.inv_freq` (buffers that old checkpoints
  /// stored) and lm_head.weight where the module has tied it to the embedding,
  /// which takes a look at every byte of both.
  Result<void> checkUnread(const module::Plan &plan) const;

  Result<std::unique_ptr<TensorReader>>
  find(const std::string &name,
       const std::vector<int64_t> &shape) const override;

  uint64_t totalBytes() const;
  const Checkpoint &tensors() const { return checkpoint; }
  const std::string &path() const { return directory; }

private:
  CheckpointSource(Checkpoint checkpoint, std::string directory)
      : checkpoint(std::move(checkpoint)), directory(std::move(directory)) {}

  Checkpoint checkpoint;
  std::string directory;
};

/// prefill/checkpoint/RandomWeights.h.
class RandomSource : public TensorSource {
public:
  explicit RandomSource(uint64_t seed) : seed(seed) {}
  Result<std::unique_ptr<TensorReader>>
  find(const std::string &name,
       const std::vector<int64_t> &shape) const override;

private:
  uint64_t seed;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_TENSORSOURCE_H
