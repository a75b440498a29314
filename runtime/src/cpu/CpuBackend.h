// The backend of this machine's processors.
#ifndef PREFILL_RUNTIME_CPU_CPUBACKEND_H
#define PREFILL_RUNTIME_CPU_CPUBACKEND_H

#include "core/Backend.h"
#include "core/ThreadPool.h"
#include "cpu/IsaVariant.h"

#include <optional>

namespace prefill::rt {

class CpuBackend : public Backend {
public:
  /// `forced`: the only variant that modules may run with.
  CpuBackend(ThreadPool &threads, std::optional<IsaVariant> forced)
      : threads(threads), forced(forced) {}

  DeviceMemory &memory() override { return HostMemory::instance(); }
  Result<std::unique_ptr<LoadedCode>> load(const module::Module &file) override;

private:
  ThreadPool &threads;
  std::optional<IsaVariant> forced;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CPU_CPUBACKEND_H
