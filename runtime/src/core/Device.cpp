#include "core/Device.h"
#include "cpu/CpuBackend.h"
#include "cuda/CudaBackend.h"
#include "prefill/checkpoint/Quote.h"

#if defined(__x86_64__)
#include "emulation/EmulationBackend.h"
#endif

#include <system_error>

using namespace prefill::rt;

namespace {

using OptionalVariant = std::optional<IsaVariant>;

Result<OptionalVariant> forcedVariant(const std::string &name) {
  if (name == "cpu")
    return OptionalVariant();
  OptionalVariant forced = parseIsaVariant(name.substr(4));
  if (!forced)
    return Error{ErrorCode::invalidArgument,
                 "unknown device " + quote(name) +
                     ", expected cpu, cpu:avx2, cpu:avx_vnni, cpu:avx512, "
                     "cpu:avx512_vnni, cpu:avx512_bf16 or cpu:amx_bf16"};
  if (!hostSupports(*forced))
    return Error{ErrorCode::unsupported, "device " + quote(name) +
                                             ": this CPU supports " +
                                             hostVariants()};
  return forced;
}

Result<Device::MakeBackend> chooseBackend(const std::string &name) {
  if (name == "cpu" || name.rfind("cpu:", 0) == 0) {
    Result<OptionalVariant> forced = forcedVariant(name);
    if (!forced)
      return forced.takeError();
    return Device::MakeBackend(
        [forced =
             *forced](ThreadPool &threads) -> Result<std::unique_ptr<Backend>> {
          return std::unique_ptr<Backend>(new CpuBackend(threads, forced));
        });
  }
  if (name == "cuda-emu" || name.rfind("cuda-emu:", 0) == 0) {
    std::string chip = name.size() > 9 ? name.substr(9) : "";
    if (chip.rfind("sm_", 0) != 0)
      return Error{ErrorCode::invalidArgument,
                   "unknown device " + quote(name) +
                       ", expected cuda-emu:sm_XX with the chip that the "
                       "module was compiled for"};
#if defined(__x86_64__)
    return Device::MakeBackend(
        [chip](ThreadPool &threads) -> Result<std::unique_ptr<Backend>> {
          return std::unique_ptr<Backend>(
              new emulation::EmulationBackend(threads, chip));
        });
#else
    return Error{ErrorCode::unsupported,
                 "device " + quote(name) +
                     ": the emulator runs on x86-64 only, expected cpu"};
#endif
  }
  if (name == "cuda" || name.rfind("cuda:", 0) == 0)
    return Device::MakeBackend(
        [name](ThreadPool &) { return cuda::CudaBackend::create(name); });
  return Error{ErrorCode::invalidArgument,
               "unknown device " + quote(name) +
                   ", expected cpu, cpu:VARIANT, cuda or cuda-emu:sm_XX"};
}

} // namespace

Result<std::unique_ptr<Device>> Device::create(const std::string &name,
                                               int numThreads,
                                               const Topology &topology) {
  Result<MakeBackend> make = chooseBackend(name);
  if (!make)
    return make.takeError();
  return create(numThreads, topology, *make);
}

Result<std::unique_ptr<Device>> Device::create(int numThreads,
                                               const Topology &topology,
                                               const MakeBackend &make) {
  constexpr int maxThreads = 1024;
  if (numThreads < 0 || numThreads > maxThreads)
    return Error{ErrorCode::invalidArgument,
                 "number of threads is " + std::to_string(numThreads) +
                     ", expected 0 (default) to " + std::to_string(maxThreads)};
  if (numThreads == 0)
    numThreads = ThreadPool::defaultSize();
  try {
    std::unique_ptr<Device> device(new Device(Placement(numThreads, topology)));
    Result<std::unique_ptr<Backend>> backend = make(device->pool);
    if (!backend)
      return backend.takeError();
    device->kernels = std::move(*backend);
    return device;
  } catch (const std::system_error &error) {
    return Error{ErrorCode::unsupported, "cannot start " +
                                             std::to_string(numThreads) +
                                             " threads: " + error.what()};
  }
}
