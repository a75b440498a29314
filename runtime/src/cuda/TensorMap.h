// How the tensor memory accelerator (from sm_90) sees a matrix.
#ifndef PREFILL_RUNTIME_CUDA_TENSORMAP_H
#define PREFILL_RUNTIME_CUDA_TENSORMAP_H

#include "cuda/CudaDevice.h"

#include <vector>

namespace prefill::rt::cuda {

/// Extents are in elements, innermost dimension first.
struct TensorMapShape {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  CUdeviceptr address = 0;
  std::vector<uint64_t> extents;
  /// In bytes, of every dimension but the innermost.
  std::vector<uint64_t> strides;
  /// What one copy moves into shared memory.
  std::vector<uint32_t> box;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
};

/// Checks the limits that the driver only answers with
/// CUDA_ERROR_INVALID_VALUE, and encodes. Elements out of bounds read as zero.
Result<CUtensorMap> encodeTensorMap(const CudaDevice &device,
                                    const TensorMapShape &shape);

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_TENSORMAP_H
