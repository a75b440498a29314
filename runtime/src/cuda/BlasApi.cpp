#include "cuda/BlasApi.h"
#include "prefill/checkpoint/Quote.h"

#include <cstdlib>
#include <dlfcn.h>
#include <string_view>

using namespace prefill::rt;
using namespace prefill::rt::cuda;

std::vector<std::string> BlasApi::defaultLibraries() {
  return {"libcublasLt.so.13", "libcublasLt.so.12"};
}

Result<bool> BlasApi::allowed() {
  const char *value = std::getenv("PREFILL_CUBLASLT");
  std::string_view text = value ? value : "on";
  if (text == "on" || text == "off")
    return text == "on";
  return Error{ErrorCode::invalidArgument,
               "the environment's PREFILL_CUBLASLT is " +
                   quote(std::string(text)) + ", expected on or off"};
}

Result<std::shared_ptr<const BlasApi>>
BlasApi::load(const std::vector<std::string> &libraries) {
  void *handle = nullptr;
  std::string name, reason;
  for (const std::string &library : libraries) {
    name = library;
    handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle)
      break;
    if (reason.empty())
      reason = ::dlerror();
  }
  if (!handle)
    return Error{ErrorCode::unsupported,
                 "cuBLASLt cannot be opened: " + quote(reason)};
  auto api = std::make_shared<BlasApi>();
#define PREFILL_BLAS_FUNCTION(member, symbol, result, parameters)              \
  api->member =                                                                \
      reinterpret_cast<decltype(api->member)>(::dlsym(handle, #symbol));       \
  if (!api->member)                                                            \
    return Error{ErrorCode::unsupported,                                       \
                 "cuBLASLt " + quote(name) + " has no " #symbol};
#include "cuda/BlasFunctions.def"
  api->version = api->getVersion();
  return std::shared_ptr<const BlasApi>(std::move(api));
}

Error BlasApi::error(cublasStatus_t status, const std::string &what) const {
  const char *name = getStatusName(status);
  return Error{status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::outOfMemory
                                                    : ErrorCode::io,
               what + ": " +
                   (name ? name : "cublasStatus_t " + std::to_string(status))};
}
