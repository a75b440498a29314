// The backend `cuda`: a GPU through NVIDIA's driver.
#ifndef PREFILL_RUNTIME_CUDA_CUDABACKEND_H
#define PREFILL_RUNTIME_CUDA_CUDABACKEND_H

#include "core/Backend.h"
#include "cuda/BlasAlgorithmCache.h"
#include "cuda/BlasApi.h"
#include "cuda/CudaMemory.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace prefill::rt::cuda {

/// Where the libraries and files are that the backend opens.
struct CudaPlaces {
  std::string driver = DriverApi::defaultLibrary;
  std::vector<std::string> blas = BlasApi::defaultLibraries();
  std::string algorithms = BlasAlgorithmCache::defaultPath();
};

class CudaBackend : public Backend {
public:
  /// name: "cuda" or "cuda:N". The Error contains "no CUDA device" where the
  /// driver or the device is missing.
  static Result<std::unique_ptr<Backend>> create(const std::string &name,
                                                 const CudaPlaces &places = {});

  DeviceMemory &memory() override { return *deviceMemory; }
  /// The plan of the device's own chip, else that of the newest older chip
  /// whose code runs here.
  Result<std::unique_ptr<LoadedCode>> load(const module::Module &file) override;
  /// 16 bytes: what kernels load and store at once.
  int64_t featureUnit() const override { return 8; }

  const CudaDevice &device() const { return *gpu; }

private:
  CudaBackend(std::unique_ptr<CudaDevice> gpu,
              std::unique_ptr<CudaMemory> memory, CudaPlaces places)
      : gpu(std::move(gpu)), deviceMemory(std::move(memory)),
        places(std::move(places)) {}
  /// At the first module that has a use for it; it may be absent.
  void openBlas();

  std::unique_ptr<CudaDevice> gpu;
  std::unique_ptr<CudaMemory> deviceMemory;
  CudaPlaces places;
  std::mutex mutex; ///< of what follows
  bool blasSought = false;
  std::shared_ptr<const BlasApi> blas;
  std::optional<BlasAlgorithmCache> algorithms;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_CUDABACKEND_H
