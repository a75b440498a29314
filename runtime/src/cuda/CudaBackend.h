// The backend `cuda`: a GPU through NVIDIA's driver.
#ifndef PREFILL_RUNTIME_CUDA_CUDABACKEND_H
#define PREFILL_RUNTIME_CUDA_CUDABACKEND_H

#include "core/Backend.h"
#include "cuda/CudaMemory.h"

#include <memory>
#include <string>

namespace prefill::rt::cuda {

class CudaBackend : public Backend {
public:
  /// name: "cuda" or "cuda:N". The Error contains "no CUDA device" where the
  /// driver or the device is missing.
  static Result<std::unique_ptr<Backend>>
  create(const std::string &name,
         const std::string &library = DriverApi::defaultLibrary);

  DeviceMemory &memory() override { return *deviceMemory; }
  /// The plan of the device's own chip, else that of the newest older chip
  /// whose code runs here.
  Result<std::unique_ptr<LoadedCode>> load(const module::Module &file) override;
  /// 16 bytes: what kernels load and store at once.
  int64_t featureUnit() const override { return 8; }

  const CudaDevice &device() const { return *gpu; }

private:
  CudaBackend(std::unique_ptr<CudaDevice> gpu,
              std::unique_ptr<CudaMemory> memory)
      : gpu(std::move(gpu)), deviceMemory(std::move(memory)) {}

  std::unique_ptr<CudaDevice> gpu;
  std::unique_ptr<CudaMemory> deviceMemory;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_CUDABACKEND_H
