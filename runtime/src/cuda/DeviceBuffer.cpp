#include "cuda/DeviceBuffer.h"

#include <utility>

using namespace prefill::rt;
using namespace prefill::rt::cuda;

Result<DeviceBuffer> DeviceBuffer::allocate(const CommandStream &commands,
                                            uint64_t bytes,
                                            const std::string &what) {
  DeviceBuffer buffer;
  if (bytes == 0)
    return buffer;
  const CudaDevice &device = commands.device();
  CurrentContext current(device);
  CUdeviceptr start = 0;
  CUresult result =
      device.api().memAllocAsync(&start, bytes, commands.handle());
  if (result != CUDA_SUCCESS) {
    std::string call =
        "cuMemAllocAsync of " + std::to_string(bytes) + " bytes, " + what;
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      call += ", " + std::to_string(device.availableBytes()) + " of " +
              std::to_string(device.properties().memoryBytes) + " are free";
    return device.api().error(result, call);
  }
  buffer.commands = &commands;
  buffer.start = start;
  buffer.length = bytes;
  return buffer;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer &&other) noexcept
    : commands(other.commands), start(std::exchange(other.start, 0)),
      length(std::exchange(other.length, 0)) {}

DeviceBuffer &DeviceBuffer::operator=(DeviceBuffer &&other) noexcept {
  std::swap(commands, other.commands);
  std::swap(start, other.start);
  std::swap(length, other.length);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (!start)
    return;
  CurrentContext current(commands->device());
  commands->device().api().memFreeAsync(start, commands->handle());
}

Result<PinnedBuffer> PinnedBuffer::allocate(const CudaDevice &device,
                                            uint64_t bytes,
                                            const std::string &what) {
  PinnedBuffer buffer;
  if (bytes == 0)
    return buffer;
  CurrentContext current(device);
  void *start = nullptr;
  CUresult result =
      device.api().memHostAlloc(&start, bytes, memHostAllocPortable);
  if (result != CUDA_SUCCESS)
    return device.api().error(result, "cuMemHostAlloc of " +
                                          std::to_string(bytes) + " bytes, " +
                                          what);
  buffer.device = &device;
  buffer.start = static_cast<std::byte *>(start);
  buffer.length = bytes;
  return buffer;
}

PinnedBuffer::PinnedBuffer(PinnedBuffer &&other) noexcept
    : device(other.device), start(std::exchange(other.start, nullptr)),
      length(std::exchange(other.length, 0)) {}

PinnedBuffer &PinnedBuffer::operator=(PinnedBuffer &&other) noexcept {
  std::swap(device, other.device);
  std::swap(start, other.start);
  std::swap(length, other.length);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (!start)
    return;
  CurrentContext current(*device);
  device->api().memFreeHost(start);
}
