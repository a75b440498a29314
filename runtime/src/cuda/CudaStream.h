// The launches of a session on a GPU.
#ifndef PREFILL_RUNTIME_CUDA_CUDASTREAM_H
#define PREFILL_RUNTIME_CUDA_CUDASTREAM_H

#include "core/Backend.h"
#include "cuda/Event.h"
#include "cuda/GraphCache.h"
#include "cuda/KernelFunction.h"
#include "cuda/ProductLaunch.h"

#include <memory>
#include <vector>

namespace prefill::rt::cuda {

/// What the streams of a module have in common.
struct StreamCode {
  const CudaDevice &device;
  const std::vector<KernelFunction> &functions; ///< as the plan's kernels
  /// As the plan's schedules; products without `blas` are kernels like others.
  const std::vector<ScheduleProducts> &products;
  std::shared_ptr<const BlasApi> blas; ///< may be null
  BlasAlgorithmCache *algorithms;      ///< null where `blas` is
};

/// Collects the launches of a call and enqueues them all at its end: one by one
/// with an event between two when the call's bucket of lengths is new, as a
/// graph when it has come before. synchronize() enqueues what there is.
class CudaStream : public Stream {
public:
  /// What `code` refers to outlives it. cuBLASLt's workspace is taken from
  /// `allocator`.
  static Result<std::unique_ptr<CudaStream>> create(const StreamCode &code,
                                                    Allocator &allocator);
  ~CudaStream() override;

  Result<void> beginCall(const CallShape &shape) override;
  Result<void> launch(const KernelLaunch &launch) override;
  Result<void> endCall() override;
  Result<void> synchronize() override;
  /// Of a call that was enqueued launch by launch; empty where a graph ran. A
  /// call with synchronize() after each launch is timed by its caller.
  std::optional<std::vector<LaunchTime>> launchTimes() override {
    return interrupted ? std::nullopt : std::optional(times);
  }

  void setTiming(bool enabled) override { timing = enabled; }

  const GraphCache::Statistics &graphs() const { return cache->statistics(); }

private:
  struct Pending {
    uint32_t kernel;
    uint64_t workgroups;
    std::vector<uint64_t> words;
    const ProductLaunch *product; ///< by cuBLASLt, or null
    MatmulProblem problem;
  };
  CudaStream(CommandStream commands, const StreamCode &code)
      : commands(std::move(commands)), code(code) {}

  Result<void> openBlas(Allocator &allocator);
  /// Leaves the launch to cuBLASLt where it can do it.
  void choose(uint32_t launch, Pending &pending);
  Result<void> enqueue(const Pending &launch) const;
  /// With an event before the first and after each.
  Result<void> enqueueTimed();
  /// What to call the work that is being waited for.
  std::string describePending() const;
  Result<void> readTimes();

  CommandStream commands;
  StreamCode code;
  Allocation workspace; ///< of blas
  std::unique_ptr<BlasMatmul> blas;
  CallShape call{};
  std::unique_ptr<GraphCache> cache;
  std::vector<Event> events;
  GraphCache::Key key;
  std::vector<Pending> pending;
  bool timing = false;
  bool interrupted = false; ///< by synchronize() within the call
  std::vector<LaunchTime> times;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_CUDASTREAM_H
