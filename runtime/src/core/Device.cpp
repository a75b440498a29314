#include "core/Device.h"
#include "prefill/checkpoint/Quote.h"

#include <system_error>

using namespace prefill::rt;

Result<std::unique_ptr<Device>> Device::create(const std::string &name,
                                               int numThreads,
                                               const Topology &topology) {
  constexpr int maxThreads = 1024;
  if (numThreads < 0 || numThreads > maxThreads)
    return Error{ErrorCode::invalidArgument,
                 "number of threads is " + std::to_string(numThreads) +
                     ", expected 0 (all) to " + std::to_string(maxThreads)};

  std::optional<IsaVariant> forced;
  if (name.rfind("cpu:", 0) == 0) {
    forced = parseIsaVariant(name.substr(4));
    if (!forced)
      return Error{ErrorCode::invalidArgument,
                   "unknown device " + quote(name) +
                       ", expected cpu, cpu:avx2, cpu:avx512 or "
                       "cpu:avx512_bf16"};
    if (!hostSupports(*forced))
      return Error{ErrorCode::unsupported, "device " + quote(name) +
                                               ": this CPU supports " +
                                               hostVariants()};
  } else if (name == "cuda" || name.rfind("cuda:", 0) == 0) {
    return Error{ErrorCode::unsupported,
                 "device " + quote(name) +
                     ": no CUDA device: this build has the cpu backend only"};
  } else if (name.rfind("cuda-emu", 0) == 0) {
    return Error{ErrorCode::unsupported,
                 "device " + quote(name) +
                     ": this build has no cuda-emu backend, expected cpu"};
  } else if (name != "cpu") {
    return Error{ErrorCode::invalidArgument,
                 "unknown device " + quote(name) +
                     ", expected cpu, cpu:VARIANT, cuda or cuda-emu:sm_XX"};
  }

  if (numThreads == 0)
    numThreads = ThreadPool::availableProcessors();
  try {
    return std::unique_ptr<Device>(
        new Device(Placement(numThreads, topology), forced));
  } catch (const std::system_error &error) {
    return Error{ErrorCode::unsupported, "cannot start " +
                                             std::to_string(numThreads) +
                                             " threads: " + error.what()};
  }
}
