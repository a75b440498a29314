#include "cuda/TensorMap.h"

using namespace prefill::rt;
using namespace prefill::rt::cuda;

namespace {

uint64_t elementBytes(CUtensorMapDataType type) {
  switch (type) {
  case CU_TENSOR_MAP_DATA_TYPE_UINT8:
    return 1;
  case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
  case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
    return 2;
  case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    return 4;
  }
  return 0;
}

/// The bytes that a row of the box may have.
uint64_t swizzleSpan(CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
  case CU_TENSOR_MAP_SWIZZLE_NONE:
    return UINT64_MAX;
  case CU_TENSOR_MAP_SWIZZLE_32B:
    return 32;
  case CU_TENSOR_MAP_SWIZZLE_64B:
    return 64;
  case CU_TENSOR_MAP_SWIZZLE_128B:
    return 128;
  }
  return 0;
}

Error refused(const std::string &what, uint64_t value,
              const std::string &expected) {
  return Error{ErrorCode::invalidArgument, "tensor map: " + what + " is " +
                                               std::to_string(value) +
                                               ", expected " + expected};
}

// The limits stand in the documentation of cuTensorMapEncodeTiled.
Result<void> check(const TensorMapShape &shape) {
  constexpr uint64_t maxExtent = uint64_t(1) << 32;
  constexpr uint64_t maxStride = uint64_t(1) << 40;
  constexpr uint32_t maxBox = 256;
  size_t rank = shape.extents.size();
  if (rank < 1 || rank > 5)
    return refused("rank", rank, "1 to 5");
  if (shape.strides.size() != rank - 1)
    return refused("number of strides", shape.strides.size(),
                   std::to_string(rank - 1) + ", one less than the rank");
  if (shape.box.size() != rank)
    return refused("number of box extents", shape.box.size(),
                   std::to_string(rank) + ", the rank");
  uint64_t bytes = elementBytes(shape.type);
  if (bytes == 0)
    return refused("data type", shape.type, "uint8, f16, bf16 or f32");
  if (shape.address % 16)
    return refused("address", shape.address, "a multiple of 16");
  for (size_t i = 0; i < rank; ++i) {
    std::string index = " " + std::to_string(i);
    if (shape.extents[i] < 1 || shape.extents[i] > maxExtent)
      return refused("extent" + index, shape.extents[i], "1 to 2^32");
    if (shape.box[i] < 1 || shape.box[i] > maxBox)
      return refused("box extent" + index, shape.box[i], "1 to 256");
    if (i + 1 == rank)
      break;
    if (shape.strides[i] % 16 || shape.strides[i] == 0 ||
        shape.strides[i] >= maxStride)
      return refused("stride" + index, shape.strides[i],
                     "a multiple of 16 below 2^40");
  }
  uint64_t inner = shape.box[0] * bytes;
  if (inner % 16)
    return refused("a row of the box in bytes", inner, "a multiple of 16");
  if (uint64_t span = swizzleSpan(shape.swizzle); inner > span)
    return refused("a row of the box in bytes", inner,
                   "at most the swizzle's " + std::to_string(span));
  return {};
}

} // namespace

Result<CUtensorMap>
prefill::rt::cuda::encodeTensorMap(const CudaDevice &device,
                                   const TensorMapShape &shape) {
  if (Result<void> ok = check(shape); !ok)
    return ok.takeError();
  const DriverApi &api = device.api();
  if (!api.tensorMapEncodeTiled)
    return Error{ErrorCode::unsupported, "tensor map: the driver (CUDA " +
                                             versionText(api.version) +
                                             ") has no cuTensorMapEncodeTiled"};
  const uint32_t elementStrides[5] = {1, 1, 1, 1, 1};
  CUtensorMap map;
  CurrentContext current(device);
  CUresult result = api.tensorMapEncodeTiled(
      &map, shape.type, static_cast<uint32_t>(shape.extents.size()),
      reinterpret_cast<void *>(shape.address), shape.extents.data(),
      shape.strides.data(), shape.box.data(), elementStrides,
      CU_TENSOR_MAP_INTERLEAVE_NONE, shape.swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    return api.error(result, "cuTensorMapEncodeTiled");
  return map;
}
