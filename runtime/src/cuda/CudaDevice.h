// A GPU: its properties and its primary context.
#ifndef PREFILL_RUNTIME_CUDA_CUDADEVICE_H
#define PREFILL_RUNTIME_CUDA_CUDADEVICE_H

#include "cuda/DriverApi.h"

#include <memory>
#include <string>

namespace prefill::rt::cuda {

struct DeviceProperties {
  std::string name;
  int ordinal = 0;
  /// Compute capability, 80 for sm_80.
  int chip = 0;
  int multiprocessors = 0;
  int maxThreadsPerBlock = 0;
  /// Dynamic and static shared memory that a block may have after opting in.
  int maxSharedBytes = 0;
  int l2Bytes = 0;
  uint64_t memoryBytes = 0;
  int driverVersion = 0;
};

/// Holds the device's primary context, which CUDA's own libraries and the
/// program around the runtime share. Not movable: what lives on the device
/// refers to it.
class CudaDevice {
public:
  /// name: "cuda" (device 0) or "cuda:N". `library` is opened as the driver.
  static Result<std::unique_ptr<CudaDevice>>
  create(const std::string &name,
         const std::string &library = DriverApi::defaultLibrary);
  CudaDevice(const CudaDevice &) = delete;
  CudaDevice &operator=(const CudaDevice &) = delete;
  ~CudaDevice();

  const DriverApi &api() const { return *driver; }
  const DeviceProperties &properties() const { return about; }
  CUcontext context() const { return primary; }

  /// Memory that is free now, in bytes; 0 where it cannot be told.
  uint64_t availableBytes() const;

private:
  explicit CudaDevice(std::shared_ptr<const DriverApi> driver)
      : driver(std::move(driver)) {}
  Result<void> readProperties(CUdevice handle, int ordinal);

  std::shared_ptr<const DriverApi> driver;
  DeviceProperties about;
  CUdevice handle = 0;
  CUcontext primary = nullptr;
};

/// The device's context is current on this thread as long as the scope lives;
/// afterwards the one that was.
class CurrentContext {
public:
  explicit CurrentContext(const CudaDevice &device) : device(device) {
    device.api().ctxPushCurrent(device.context());
  }
  CurrentContext(const CurrentContext &) = delete;
  CurrentContext &operator=(const CurrentContext &) = delete;
  ~CurrentContext() {
    CUcontext popped;
    device.api().ctxPopCurrent(&popped);
  }

private:
  const CudaDevice &device;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_CUDADEVICE_H
