#include "cuda/DriverApi.h"
#include "prefill/checkpoint/Quote.h"

#include <dlfcn.h>

using namespace prefill::rt;
using namespace prefill::rt::cuda;

namespace {

Error noDevice(const std::string &reason) {
  return Error{ErrorCode::unsupported, "no CUDA device: " + reason};
}

ErrorCode codeOf(CUresult result) {
  switch (result) {
  case CUDA_ERROR_OUT_OF_MEMORY:
    return ErrorCode::outOfMemory;
  case CUDA_ERROR_NO_DEVICE:
  case CUDA_ERROR_NO_BINARY_FOR_GPU:
  case CUDA_ERROR_STUB_LIBRARY:
    return ErrorCode::unsupported;
  case CUDA_ERROR_INVALID_IMAGE:
  case CUDA_ERROR_INVALID_PTX:
  case CUDA_ERROR_NOT_FOUND:
    return ErrorCode::invalidModule;
  default:
    return ErrorCode::io;
  }
}

} // namespace

std::string prefill::rt::cuda::versionText(int version) {
  return std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

Result<std::shared_ptr<const DriverApi>>
DriverApi::load(const std::string &library) {
  void *handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return noDevice("NVIDIA's driver cannot be opened: " + quote(::dlerror()));
  auto api = std::make_shared<DriverApi>();
  const char *missing = nullptr;
#define PREFILL_CUDA_FUNCTION(member, symbol, parameters)                      \
  api->member =                                                                \
      reinterpret_cast<decltype(api->member)>(::dlsym(handle, #symbol));       \
  if (!api->member && !missing)                                                \
    missing = #symbol;
#define PREFILL_CUDA_OPTIONAL(member, symbol, parameters)                      \
  api->member =                                                                \
      reinterpret_cast<decltype(api->member)>(::dlsym(handle, #symbol));
#include "cuda/DriverFunctions.def"
  if (missing)
    return noDevice("the driver " + quote(library) + " has no " + missing +
                    ", expected one of CUDA 12.0 or newer");
  if (CUresult result = api->init(0); result != CUDA_SUCCESS)
    return noDevice(api->error(result, "cuInit").message);
  if (CUresult result = api->driverGetVersion(&api->version);
      result != CUDA_SUCCESS)
    return noDevice(api->error(result, "cuDriverGetVersion").message);
  return std::shared_ptr<const DriverApi>(std::move(api));
}

Error DriverApi::error(CUresult result, const std::string &what) const {
  const char *name = nullptr, *text = nullptr;
  if (getErrorName(result, &name) != CUDA_SUCCESS)
    name = nullptr;
  if (getErrorString(result, &text) != CUDA_SUCCESS)
    text = nullptr;
  std::string message =
      what + ": " +
      (name ? std::string(name) : "CUresult " + std::to_string(int(result)));
  if (text)
    message += std::string(" (") + text + ")";
  return Error{codeOf(result), message};
}
