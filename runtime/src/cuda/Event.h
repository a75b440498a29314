// A mark in a stream of the device.
#ifndef PREFILL_RUNTIME_CUDA_EVENT_H
#define PREFILL_RUNTIME_CUDA_EVENT_H

#include "cuda/CommandStream.h"

namespace prefill::rt::cuda {

class Event {
public:
  enum class Purpose { order, timing };
  static Result<Event> create(const CudaDevice &device, Purpose purpose);
  Event(Event &&other) noexcept;
  Event &operator=(Event &&other) noexcept;
  ~Event();

  /// At what the stream holds now.
  Result<void> record(const CommandStream &commands);
  /// Until the stream has come past the mark; at once when never recorded.
  Result<void> wait() const;
  /// Between two marks of purpose timing that the stream has come past.
  Result<float> millisecondsSince(const Event &start) const;

private:
  Event(const CudaDevice &device, CUevent handle)
      : device(&device), handle(handle) {}

  const CudaDevice *device;
  CUevent handle;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_EVENT_H
