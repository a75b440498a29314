// The CUDA driver, opened at run time: the same binary works where it is
// absent.
#ifndef PREFILL_RUNTIME_CUDA_DRIVERAPI_H
#define PREFILL_RUNTIME_CUDA_DRIVERAPI_H

#include "cuda/DriverAbi.h"
#include "prefill/checkpoint/Result.h"

#include <memory>
#include <string>

namespace prefill::rt::cuda {

/// The entry points of DriverFunctions.def under the names of its first
/// column; optional ones are nullptr in drivers that lack them.
struct DriverApi {
  static constexpr const char *defaultLibrary = "libcuda.so.1";

  /// Opens the library, finds the entry points and initialises the driver. Any
  /// failure means that nothing can run here: its line contains "no CUDA
  /// device". The library stays loaded, as the driver does not bear unloading.
  static Result<std::shared_ptr<const DriverApi>>
  load(const std::string &library = defaultLibrary);

#define PREFILL_CUDA_FUNCTION(member, symbol, parameters)                      \
  CUresult(*member) parameters = nullptr;
#include "cuda/DriverFunctions.def"

  /// As cuDriverGetVersion gives it: 12040 is 12.4.
  int version = 0;

  /// "<what>: CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
  Error error(CUresult result, const std::string &what) const;
  Result<void> check(CUresult result, const std::string &what) const {
    if (result == CUDA_SUCCESS)
      return {};
    return error(result, what);
  }
};

/// "12.4" for 12040.
std::string versionText(int version);

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_DRIVERAPI_H
