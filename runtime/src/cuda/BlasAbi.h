// The part of cuBLASLt's ABI that the runtime uses, as DriverAbi.h is of the
// driver's. test/unit/runtime/cuda/BlasAbiTest.cpp compares it with the real
// header where there is one.
#ifndef PREFILL_RUNTIME_CUDA_BLASABI_H
#define PREFILL_RUNTIME_CUDA_BLASABI_H

#include "cuda/DriverAbi.h"

#include <cstddef>
#include <cstdint>

namespace prefill::rt::cuda {

using cublasLtHandle_t = struct cublasLtContext *;
// Opaque to us: the library makes and destroys them.
using cublasLtMatmulDesc_t = struct BlasMatmulDesc *;
using cublasLtMatrixLayout_t = struct BlasMatrixLayout *;
using cublasLtMatmulPreference_t = struct BlasMatmulPreference *;

enum cublasStatus_t : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};

enum cudaDataType_t : int {
  CUDA_R_32F = 0,
  CUDA_R_16F = 2,
  CUDA_R_16BF = 14,
};

enum cublasComputeType_t : int { CUBLAS_COMPUTE_32F = 68 };
enum cublasOperation_t : int { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };

enum cublasLtMatmulDescAttributes_t : int {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
  CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,
};

enum cublasLtEpilogue_t : int {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_BIAS = 4,
};

enum cublasLtMatmulPreferenceAttributes_t : int {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
};

/// May be stored and used again with the same version of the library.
struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};

struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_BLASABI_H
