// The backend `cuda-emu`: a CUDA plan executed by the emulator, on host memory.
#ifndef PREFILL_RUNTIME_EMULATION_EMULATIONBACKEND_H
#define PREFILL_RUNTIME_EMULATION_EMULATIONBACKEND_H

#include "core/Backend.h"
#include "core/ThreadPool.h"
#include "emulation/Emulator.h"

#include <mutex>
#include <string>

namespace prefill::rt::emulation {

/// Memory of the host; in count-only mode it is reserved without asking whether
/// the machine has as much, since nobody writes to most of it.
class EmulatedMemory : public HostMemory {
public:
  Result<DeviceAddress> take(uint64_t bytes) override;

  bool reserveOnly = false;
};

class EmulationBackend : public Backend {
public:
  /// chip: "sm_80". Runs modules that have emulation code for that chip alone.
  EmulationBackend(ThreadPool &threads, std::string chip)
      : emulator(threads), chip(std::move(chip)) {}

  DeviceMemory &memory() override { return hostMemory; }
  Result<std::unique_ptr<LoadedCode>> load(const module::Module &file) override;
  bool wantsRanges() const override { return true; }
  /// 16 bytes: what kernels load and store at once.
  int64_t featureUnit() const override { return 8; }
  bool countsOnly() const override { return options.countOnly; }
  Result<void> configureEmulation(uint64_t seed, bool countOnly) override;

  /// Registers what the launch may touch, runs it, and turns a finding into an
  /// Error. Thread safe.
  Result<LaunchCounters> run(const Program &program, const std::string &kernel,
                             const KernelLaunch &launch);

private:
  EmulatedMemory hostMemory;
  Emulator emulator;
  std::mutex mutex; ///< of the emulator: sessions take turns
  std::string chip;
  LaunchOptions options;
};

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_EMULATIONBACKEND_H
