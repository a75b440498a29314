// Where kernels run.
#ifndef PREFILL_RUNTIME_CORE_DEVICE_H
#define PREFILL_RUNTIME_CORE_DEVICE_H

#include "core/ThreadPool.h"
#include "cpu/IsaVariant.h"
#include "prefill/checkpoint/Result.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace prefill::rt {

/// A CPU: its threads and, when the name asks for one, the ISA variant that
/// modules have to be run with.
class Device {
public:
  /// name: "cpu" or "cpu:VARIANT"; numThreads 0: every processor that this
  /// process may use. "cuda..." is refused with "no CUDA device".
  static Result<std::unique_ptr<Device>>
  create(const std::string &name, int numThreads,
         const Topology &topology = Topology::ofThisMachine());

  ThreadPool &threads() { return pool; }
  std::optional<IsaVariant> forcedVariant() const { return forced; }

private:
  Device(Placement placement, std::optional<IsaVariant> forced)
      : pool(std::move(placement)), forced(forced) {}

  ThreadPool pool;
  std::optional<IsaVariant> forced;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_DEVICE_H
