#include "cuda/CommandStream.h"

#include <utility>

using namespace prefill::rt;
using namespace prefill::rt::cuda;

namespace {

std::string describe(const char *call, uint64_t bytes,
                     const std::string &what) {
  return std::string(call) + " of " + std::to_string(bytes) + " bytes, " + what;
}

} // namespace

Result<CommandStream> CommandStream::create(const CudaDevice &device) {
  CurrentContext current(device);
  CUstream stream;
  CUresult result = device.api().streamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS)
    return device.api().error(result, "cuStreamCreate");
  return CommandStream(device, stream);
}

CommandStream::CommandStream(CommandStream &&other) noexcept
    : owner(other.owner), stream(std::exchange(other.stream, nullptr)) {}

CommandStream &CommandStream::operator=(CommandStream &&other) noexcept {
  std::swap(owner, other.owner);
  std::swap(stream, other.stream);
  return *this;
}

CommandStream::~CommandStream() {
  if (!stream)
    return;
  CurrentContext current(*owner);
  owner->api().streamSynchronize(stream);
  owner->api().streamDestroy(stream);
}

Result<void> CommandStream::upload(CUdeviceptr to, const void *from,
                                   uint64_t bytes,
                                   const std::string &what) const {
  if (bytes == 0)
    return {};
  CurrentContext current(*owner);
  CUresult result = owner->api().memcpyHtoDAsync(to, from, bytes, stream);
  if (result != CUDA_SUCCESS)
    return owner->api().error(result,
                              describe("cuMemcpyHtoDAsync", bytes, what));
  return {};
}

Result<void> CommandStream::download(void *to, CUdeviceptr from, uint64_t bytes,
                                     const std::string &what) const {
  if (bytes == 0)
    return {};
  CurrentContext current(*owner);
  CUresult result = owner->api().memcpyDtoHAsync(to, from, bytes, stream);
  if (result != CUDA_SUCCESS)
    return owner->api().error(result,
                              describe("cuMemcpyDtoHAsync", bytes, what));
  return {};
}

Result<void> CommandStream::fill(CUdeviceptr to, uint8_t value, uint64_t bytes,
                                 const std::string &what) const {
  if (bytes == 0)
    return {};
  CurrentContext current(*owner);
  CUresult result = owner->api().memsetD8Async(to, value, bytes, stream);
  if (result != CUDA_SUCCESS)
    return owner->api().error(result, describe("cuMemsetD8Async", bytes, what));
  return {};
}

Result<void> CommandStream::synchronize(const std::string &what) const {
  CurrentContext current(*owner);
  CUresult result = owner->api().streamSynchronize(stream);
  if (result != CUDA_SUCCESS)
    return owner->api().error(result, "cuStreamSynchronize, " + what);
  return {};
}
