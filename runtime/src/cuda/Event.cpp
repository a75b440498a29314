#include "cuda/Event.h"

#include <utility>

using namespace prefill::rt;
using namespace prefill::rt::cuda;

Result<Event> Event::create(const CudaDevice &device, Purpose purpose) {
  CurrentContext current(device);
  CUevent handle;
  CUresult result = device.api().eventCreate(
      &handle,
      purpose == Purpose::timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS)
    return device.api().error(result, "cuEventCreate");
  return Event(device, handle);
}

Event::Event(Event &&other) noexcept
    : device(other.device), handle(std::exchange(other.handle, nullptr)) {}

Event &Event::operator=(Event &&other) noexcept {
  std::swap(device, other.device);
  std::swap(handle, other.handle);
  return *this;
}

Event::~Event() {
  if (!handle)
    return;
  CurrentContext current(*device);
  device->api().eventDestroy(handle);
}

Result<void> Event::record(const CommandStream &commands) {
  CurrentContext current(*device);
  return device->api().check(
      device->api().eventRecord(handle, commands.handle()), "cuEventRecord");
}

Result<void> Event::wait() const {
  CurrentContext current(*device);
  return device->api().check(device->api().eventSynchronize(handle),
                             "cuEventSynchronize");
}

Result<float> Event::millisecondsSince(const Event &start) const {
  CurrentContext current(*device);
  float milliseconds = 0;
  CUresult result =
      device->api().eventElapsedTime(&milliseconds, start.handle, handle);
  if (result != CUDA_SUCCESS)
    return device->api().error(result, "cuEventElapsedTime");
  return milliseconds;
}
