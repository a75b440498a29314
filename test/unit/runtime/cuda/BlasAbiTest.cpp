// Our declarations of cuBLASLt's ABI against the toolkit's own header, and our
// list of symbols against the library where it is installed.
#include "cuda/BlasAbi.h"

#include <cstddef>
#include <cublasLt.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <type_traits>

namespace ours = prefill::rt::cuda;

namespace {

template <typename A, typename B>
constexpr bool sameArgument =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
    (std::is_integral_v<A> || std::is_enum_v<A>) ==
        (std::is_integral_v<B> || std::is_enum_v<B>);

template <typename A, typename B> constexpr bool sameFunction = false;
template <typename RA, typename... A, typename RB, typename... B>
constexpr bool sameFunction<RA (*)(A...), RB (*)(B...)> = [] {
  if constexpr (sizeof...(A) != sizeof...(B))
    return false;
  else
    return sameArgument<RA, RB> && (sameArgument<A, B> && ...);
}();

// The types that the parameter lists of BlasFunctions.def name.
struct Table {
  using cublasLtHandle_t = ours::cublasLtHandle_t;
  using cublasLtMatmulDesc_t = ours::cublasLtMatmulDesc_t;
  using cublasLtMatrixLayout_t = ours::cublasLtMatrixLayout_t;
  using cublasLtMatmulPreference_t = ours::cublasLtMatmulPreference_t;
  using cublasStatus_t = ours::cublasStatus_t;
  using cudaDataType_t = ours::cudaDataType_t;
  using cublasComputeType_t = ours::cublasComputeType_t;
  using cublasLtMatmulDescAttributes_t = ours::cublasLtMatmulDescAttributes_t;
  using cublasLtMatmulPreferenceAttributes_t =
      ours::cublasLtMatmulPreferenceAttributes_t;
  using cublasLtMatmulAlgo_t = ours::cublasLtMatmulAlgo_t;
  using cublasLtMatmulHeuristicResult_t = ours::cublasLtMatmulHeuristicResult_t;
  using CUstream = ours::CUstream;

#define PREFILL_BLAS_FUNCTION(member, symbol, result, parameters)              \
  using member = result(*) parameters;
#include "cuda/BlasFunctions.def"
};

#define PREFILL_BLAS_FUNCTION(member, symbol, result, parameters)              \
  static_assert(sameFunction<Table::member, decltype(&::symbol)>, #symbol);
#include "cuda/BlasFunctions.def"

#define SAME(name) static_assert(int(ours::name) == int(::name), #name)
SAME(CUBLAS_STATUS_SUCCESS);
SAME(CUBLAS_STATUS_NOT_INITIALIZED);
SAME(CUBLAS_STATUS_ALLOC_FAILED);
SAME(CUBLAS_STATUS_INVALID_VALUE);
SAME(CUBLAS_STATUS_EXECUTION_FAILED);
SAME(CUBLAS_STATUS_NOT_SUPPORTED);
SAME(CUDA_R_32F);
SAME(CUDA_R_16F);
SAME(CUDA_R_16BF);
SAME(CUBLAS_COMPUTE_32F);
SAME(CUBLAS_OP_N);
SAME(CUBLAS_OP_T);
SAME(CUBLASLT_MATMUL_DESC_TRANSA);
SAME(CUBLASLT_MATMUL_DESC_TRANSB);
SAME(CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME(CUBLASLT_EPILOGUE_DEFAULT);
SAME(CUBLASLT_EPILOGUE_BIAS);
SAME(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);

static_assert(sizeof(ours::cublasLtMatmulAlgo_t) ==
              sizeof(::cublasLtMatmulAlgo_t));
#define SAME_OFFSET(member)                                                    \
  static_assert(offsetof(ours::cublasLtMatmulHeuristicResult_t, member) ==     \
                offsetof(::cublasLtMatmulHeuristicResult_t, member))
SAME_OFFSET(algo);
SAME_OFFSET(workspaceSize);
SAME_OFFSET(state);
SAME_OFFSET(wavesCount);
SAME_OFFSET(reserved);
static_assert(sizeof(ours::cublasLtMatmulHeuristicResult_t) ==
              sizeof(::cublasLtMatmulHeuristicResult_t));

TEST(BlasAbi, TheLibraryHasEverySymbol) {
  void *library = ::dlopen(PREFILL_TOOLKIT_CUBLASLT, RTLD_LAZY | RTLD_LOCAL);
  if (!library)
    GTEST_SKIP() << ::dlerror();
#define PREFILL_BLAS_FUNCTION(member, symbol, result, parameters)              \
  EXPECT_TRUE(::dlsym(library, #symbol)) << #symbol;
#include "cuda/BlasFunctions.def"
}

} // namespace
