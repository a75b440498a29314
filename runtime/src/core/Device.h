// Where kernels run.
#ifndef PREFILL_RUNTIME_CORE_DEVICE_H
#define PREFILL_RUNTIME_CORE_DEVICE_H

#include "core/Backend.h"
#include "core/ThreadPool.h"
#include "prefill/checkpoint/Result.h"

#include <functional>
#include <memory>
#include <string>

namespace prefill::rt {

/// A backend, and the threads of this machine that prepare weights for it (the
/// cpu's are those that run kernels too).
class Device {
public:
  /// name: "cpu" or "cpu:VARIANT", "cuda-emu:CHIP", "cuda" or "cuda:NUMBER";
  /// numThreads 0: ThreadPool::defaultSize(). An Error names
  /// what is missing: "no CUDA device", an instruction set.
  static Result<std::unique_ptr<Device>>
  create(const std::string &name, int numThreads,
         const Topology &topology = Topology::ofThisMachine());

  /// The backend may use the threads that it is given; they outlive it.
  using MakeBackend =
      std::function<Result<std::unique_ptr<Backend>>(ThreadPool &)>;
  static Result<std::unique_ptr<Device>>
  create(int numThreads, const Topology &topology, const MakeBackend &make);

  ThreadPool &threads() { return pool; }
  Backend &backend() { return *kernels; }

private:
  explicit Device(Placement placement) : pool(std::move(placement)) {}

  ThreadPool pool;
  std::unique_ptr<Backend> kernels;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_DEVICE_H
