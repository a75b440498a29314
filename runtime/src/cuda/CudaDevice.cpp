#include "cuda/CudaDevice.h"
#include "prefill/checkpoint/Quote.h"

#include <charconv>
#include <optional>

using namespace prefill::rt;
using namespace prefill::rt::cuda;

namespace {

/// N of "cuda:N", 0 for "cuda".
std::optional<int> parseOrdinal(const std::string &name) {
  if (name == "cuda")
    return 0;
  std::string_view digits = std::string_view(name).substr(5);
  int ordinal = -1;
  auto [end, problem] =
      std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  if (problem != std::errc() || end != digits.data() + digits.size() ||
      ordinal < 0 || digits.front() == '-')
    return std::nullopt;
  return ordinal;
}

} // namespace

Result<std::unique_ptr<CudaDevice>>
CudaDevice::create(const std::string &name, const std::string &library) {
  std::string what = "device " + quote(name);
  std::optional<int> ordinal;
  if (name == "cuda" || name.rfind("cuda:", 0) == 0)
    ordinal = parseOrdinal(name);
  if (!ordinal)
    return Error{ErrorCode::invalidArgument,
                 "unknown " + what + ", expected cuda or cuda:N, N from 0"};
  Result<std::shared_ptr<const DriverApi>> api = DriverApi::load(library);
  if (!api) {
    Error error = api.takeError();
    error.message = what + ": " + error.message;
    return error;
  }

  std::unique_ptr<CudaDevice> device(new CudaDevice(std::move(*api)));
  const DriverApi &driver = device->api();
  int count = 0;
  if (CUresult result = driver.deviceGetCount(&count); result != CUDA_SUCCESS)
    return driver.error(result, what + ": cuDeviceGetCount");
  if (count == 0)
    return Error{ErrorCode::unsupported,
                 what + ": no CUDA device: the driver (CUDA " +
                     versionText(driver.version) + ") finds none"};
  if (*ordinal >= count)
    return Error{ErrorCode::invalidArgument,
                 what + ": no CUDA device " + std::to_string(*ordinal) +
                     ", expected 0 to " + std::to_string(count - 1)};
  CUdevice handle;
  if (CUresult result = driver.deviceGet(&handle, *ordinal);
      result != CUDA_SUCCESS)
    return driver.error(result, what + ": cuDeviceGet");
  if (Result<void> ok = device->readProperties(handle, *ordinal); !ok)
    return ok.takeError();

  CUcontext primary;
  if (CUresult result = driver.devicePrimaryCtxRetain(&primary, handle);
      result != CUDA_SUCCESS)
    return driver.error(result, what + ": cuDevicePrimaryCtxRetain");
  device->handle = handle;
  device->primary = primary;
  return device;
}

Result<void> CudaDevice::readProperties(CUdevice handle, int ordinal) {
  about.ordinal = ordinal;
  about.driverVersion = driver->version;
  char name[256] = {};
  if (CUresult result = driver->deviceGetName(name, sizeof name - 1, handle);
      result != CUDA_SUCCESS)
    return driver->error(result, "cuDeviceGetName");
  about.name = name;
  size_t bytes = 0;
  if (CUresult result = driver->deviceTotalMem(&bytes, handle);
      result != CUDA_SUCCESS)
    return driver->error(result, "cuDeviceTotalMem");
  about.memoryBytes = bytes;

  int major = 0, minor = 0, pools = 0;
  const struct {
    CUdevice_attribute attribute;
    int *value;
  } attributes[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &about.multiprocessors},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &about.maxThreadsPerBlock},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
       &about.maxSharedBytes},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &about.l2Bytes},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &pools},
  };
  for (const auto &[attribute, value] : attributes)
    if (CUresult result = driver->deviceGetAttribute(value, attribute, handle);
        result != CUDA_SUCCESS)
      return driver->error(result, "cuDeviceGetAttribute " +
                                       std::to_string(int(attribute)));
  about.chip = major * 10 + minor;
  if (!pools)
    return Error{ErrorCode::unsupported,
                 "device " + quote(about.name) +
                     " has no stream-ordered allocation (cuMemAllocAsync)"};
  return {};
}

CudaDevice::~CudaDevice() {
  if (primary)
    driver->devicePrimaryCtxRelease(handle);
}

uint64_t CudaDevice::availableBytes() const {
  CurrentContext current(*this);
  size_t available = 0, total = 0;
  if (driver->memGetInfo(&available, &total) != CUDA_SUCCESS)
    return 0;
  return available;
}
