// Memory that the device works on: its own, and pinned memory of the host.
#ifndef PREFILL_RUNTIME_CUDA_DEVICEBUFFER_H
#define PREFILL_RUNTIME_CUDA_DEVICEBUFFER_H

#include "cuda/CommandStream.h"

#include <cstddef>

namespace prefill::rt::cuda {

/// Taken and given back in the order of a stream, which outlives it: what was
/// enqueued there before still has the memory; other streams have to be
/// synchronized first. At least 256-byte aligned; holds nothing at first.
class DeviceBuffer {
public:
  static Result<DeviceBuffer> allocate(const CommandStream &commands,
                                       uint64_t bytes, const std::string &what);
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer &&other) noexcept;
  DeviceBuffer &operator=(DeviceBuffer &&other) noexcept;
  ~DeviceBuffer();

  CUdeviceptr address() const { return start; }
  uint64_t size() const { return length; }

private:
  const CommandStream *commands = nullptr;
  CUdeviceptr start = 0;
  uint64_t length = 0;
};

/// Host memory that the device reads and writes by itself, so that copies run
/// at the full speed of the bus and do not hold up the host. To be freed only
/// when no copy is under way.
class PinnedBuffer {
public:
  static Result<PinnedBuffer> allocate(const CudaDevice &device, uint64_t bytes,
                                       const std::string &what);
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer &&other) noexcept;
  PinnedBuffer &operator=(PinnedBuffer &&other) noexcept;
  ~PinnedBuffer();

  std::byte *data() const { return start; }
  uint64_t size() const { return length; }

private:
  const CudaDevice *device = nullptr;
  std::byte *start = nullptr;
  uint64_t length = 0;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_DEVICEBUFFER_H
