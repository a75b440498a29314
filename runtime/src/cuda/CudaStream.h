// The launches of a session on a GPU.
#ifndef PREFILL_RUNTIME_CUDA_CUDASTREAM_H
#define PREFILL_RUNTIME_CUDA_CUDASTREAM_H

#include "core/Backend.h"
#include "cuda/Event.h"
#include "cuda/GraphCache.h"
#include "cuda/KernelFunction.h"

#include <memory>
#include <vector>

namespace prefill::rt::cuda {

/// Collects the launches of a call and enqueues them all at its end: one by one
/// with an event between two when the call's bucket of lengths is new, as a
/// graph when it has come before. synchronize() enqueues what there is.
class CudaStream : public Stream {
public:
  /// `functions` are the plan's kernels; they and the device outlive it.
  static Result<std::unique_ptr<CudaStream>>
  create(const CudaDevice &device,
         const std::vector<KernelFunction> &functions);
  ~CudaStream() override;

  Result<void> beginCall(const CallShape &shape) override;
  Result<void> launch(const KernelLaunch &launch) override;
  Result<void> endCall() override;
  Result<void> synchronize() override;
  /// Of a call that was enqueued launch by launch; zeros where a graph ran.
  std::vector<LaunchTime> launchTimes() override { return times; }

  const GraphCache::Statistics &graphs() const { return cache->statistics(); }

private:
  struct Pending {
    uint32_t kernel;
    uint64_t workgroups;
    std::vector<uint64_t> words;
  };
  CudaStream(CommandStream commands,
             const std::vector<KernelFunction> &functions)
      : commands(std::move(commands)), functions(functions) {}

  Result<void> enqueue(const Pending &launch) const;
  /// With an event before the first and after each.
  Result<void> enqueueTimed();
  /// What to call the work that is being waited for.
  std::string describePending() const;
  Result<void> readTimes();

  CommandStream commands;
  const std::vector<KernelFunction> &functions;
  std::unique_ptr<GraphCache> cache;
  std::vector<Event> events;
  GraphCache::Key key;
  std::vector<Pending> pending;
  bool interrupted = false; ///< by synchronize() within the call
  std::vector<LaunchTime> times;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_CUDASTREAM_H
