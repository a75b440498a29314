// Our declarations of the driver's ABI against the toolkit's own header, and
// our list of symbols against the toolkit's list.
#include "cuda/DriverAbi.h" // before cuda.h, whose macros rename functions

#include <cstddef>
#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <type_traits>

namespace ours = prefill::rt::cuda;

namespace {

/// Passed in the same way: both pointers, or both numbers (or enumerations) of
/// the same size.
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

// The types that the parameter lists of DriverFunctions.def name.
struct Table {
  using CUresult = ours::CUresult;
  using CUdevice = ours::CUdevice;
  using CUdeviceptr = ours::CUdeviceptr;
  using CUcontext = ours::CUcontext;
  using CUmodule = ours::CUmodule;
  using CUfunction = ours::CUfunction;
  using CUstream = ours::CUstream;
  using CUevent = ours::CUevent;
  using CUgraph = ours::CUgraph;
  using CUgraphExec = ours::CUgraphExec;
  using CUdevice_attribute = ours::CUdevice_attribute;
  using CUfunction_attribute = ours::CUfunction_attribute;
  using CUjit_option = ours::CUjit_option;
  using CUstreamCaptureMode = ours::CUstreamCaptureMode;
  using CUlaunchConfig = ours::CUlaunchConfig;
  using CUgraphExecUpdateResultInfo = ours::CUgraphExecUpdateResultInfo;
  using CUtensorMap = ours::CUtensorMap;
  using CUtensorMapDataType = ours::CUtensorMapDataType;
  using CUtensorMapInterleave = ours::CUtensorMapInterleave;
  using CUtensorMapSwizzle = ours::CUtensorMapSwizzle;
  using CUtensorMapL2promotion = ours::CUtensorMapL2promotion;
  using CUtensorMapFloatOOBfill = ours::CUtensorMapFloatOOBfill;

#define PREFILL_CUDA_FUNCTION(member, symbol, parameters)                      \
  using member = CUresult(*) parameters;
#include "cuda/DriverFunctions.def"
};

#define PREFILL_CUDA_FUNCTION(member, symbol, parameters)                      \
  static_assert(sameFunction<Table::member, decltype(&::symbol)>, #symbol);
#include "cuda/DriverFunctions.def"

#define SAME(name) static_assert(int(ours::name) == int(::name), #name)
SAME(CUDA_SUCCESS);
SAME(CUDA_ERROR_INVALID_VALUE);
SAME(CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_ERROR_NOT_INITIALIZED);
SAME(CUDA_ERROR_STUB_LIBRARY);
SAME(CUDA_ERROR_NO_DEVICE);
SAME(CUDA_ERROR_INVALID_DEVICE);
SAME(CUDA_ERROR_INVALID_IMAGE);
SAME(CUDA_ERROR_INVALID_CONTEXT);
SAME(CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(CUDA_ERROR_INVALID_PTX);
SAME(CUDA_ERROR_INVALID_HANDLE);
SAME(CUDA_ERROR_NOT_FOUND);
SAME(CUDA_ERROR_NOT_READY);
SAME(CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME(CUDA_ERROR_LAUNCH_FAILED);
SAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
SAME(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
SAME(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
SAME(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
SAME(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
SAME(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME(CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(CU_JIT_INFO_LOG_BUFFER);
SAME(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
SAME(CU_JIT_ERROR_LOG_BUFFER);
SAME(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME(CU_STREAM_NON_BLOCKING);
SAME(CU_EVENT_DEFAULT);
SAME(CU_EVENT_DISABLE_TIMING);
SAME(CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(CU_LAUNCH_ATTRIBUTE_IGNORE);
SAME(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(CU_GRAPH_EXEC_UPDATE_SUCCESS);
SAME(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
SAME(CU_TENSOR_MAP_DATA_TYPE_UINT8);
SAME(CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
SAME(CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
SAME(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME(CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME(CU_TENSOR_MAP_SWIZZLE_NONE);
SAME(CU_TENSOR_MAP_SWIZZLE_32B);
SAME(CU_TENSOR_MAP_SWIZZLE_64B);
SAME(CU_TENSOR_MAP_SWIZZLE_128B);
SAME(CU_TENSOR_MAP_L2_PROMOTION_NONE);
SAME(CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
SAME(CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);

static_assert(ours::memHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(ours::launchParamEnd == CU_LAUNCH_PARAM_END_AS_INT);
static_assert(ours::launchParamBufferPointer ==
              CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT);
static_assert(ours::launchParamBufferSize ==
              CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT);

#define SAME_SIZE(name)                                                        \
  static_assert(sizeof(ours::name) == sizeof(::name) &&                        \
                alignof(ours::name) == alignof(::name))
#define SAME_OFFSET(type, member)                                              \
  static_assert(offsetof(ours::type, member) == offsetof(::type, member))
SAME_SIZE(CUdeviceptr);
SAME_SIZE(CUlaunchAttributeValue);
SAME_SIZE(CUlaunchAttribute);
SAME_OFFSET(CUlaunchAttribute, id);
SAME_OFFSET(CUlaunchAttribute, value);
SAME_SIZE(CUlaunchConfig);
SAME_OFFSET(CUlaunchConfig, gridDimX);
SAME_OFFSET(CUlaunchConfig, blockDimX);
SAME_OFFSET(CUlaunchConfig, sharedMemBytes);
SAME_OFFSET(CUlaunchConfig, hStream);
SAME_OFFSET(CUlaunchConfig, attrs);
SAME_OFFSET(CUlaunchConfig, numAttrs);
SAME_SIZE(CUgraphExecUpdateResultInfo);
SAME_OFFSET(CUgraphExecUpdateResultInfo, errorNode);
SAME_OFFSET(CUgraphExecUpdateResultInfo, errorFromNode);
SAME_SIZE(CUtensorMap);

// A mismatch does not compile; what is left to ask is whether the names are
// those that drivers export.
TEST(DriverAbi, TheToolkitsDriverHasEverySymbol) {
  void *library = ::dlopen(PREFILL_TOOLKIT_LIBCUDA, RTLD_LAZY | RTLD_LOCAL);
  ASSERT_TRUE(library) << ::dlerror();
#define PREFILL_CUDA_FUNCTION(member, symbol, parameters)                      \
  EXPECT_TRUE(::dlsym(library, #symbol)) << #symbol;
#include "cuda/DriverFunctions.def"
  ::dlclose(library);
}

} // namespace
