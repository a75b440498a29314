#include "cuda/CudaMemory.h"

using namespace prefill::rt;
using namespace prefill::rt::cuda;

Result<std::unique_ptr<CudaMemory>>
CudaMemory::create(const CudaDevice &device) {
  Result<CommandStream> commands = CommandStream::create(device);
  if (!commands)
    return commands.takeError();
  std::unique_ptr<CudaMemory> memory(new CudaMemory(std::move(*commands)));
  Result<PinnedStaging> staging = PinnedStaging::create(memory->commands);
  if (!staging)
    return staging.takeError();
  memory->staging = std::make_unique<PinnedStaging>(std::move(*staging));
  return memory;
}

Result<DeviceAddress> CudaMemory::take(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  Result<DeviceBuffer> buffer =
      DeviceBuffer::allocate(commands, bytes, "a tensor");
  if (!buffer)
    return buffer.takeError();
  if (Result<void> ok = commands.fill(buffer->address(), 0, bytes, "a tensor");
      !ok)
    return ok.takeError();
  if (Result<void> ok = commands.synchronize("a tensor's memory"); !ok)
    return ok.takeError();
  DeviceAddress address = buffer->address();
  buffers.emplace(address, std::move(*buffer));
  return address;
}

void CudaMemory::giveBack(DeviceAddress address, uint64_t) {
  std::lock_guard<std::mutex> lock(mutex);
  buffers.erase(address);
  // Now, so that the next allocation of any stream may have it.
  (void)commands.synchronize("giving memory back");
}

Result<void> CudaMemory::upload(DeviceAddress to, const void *from,
                                uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  if (Result<void> ok = staging->upload(to, from, bytes, "to the device"); !ok)
    return ok;
  return commands.synchronize("copying to the device");
}

Result<void> CudaMemory::download(void *to, DeviceAddress from,
                                  uint64_t bytes) const {
  std::lock_guard<std::mutex> lock(mutex);
  return staging->download(to, from, bytes, "from the device");
}

Result<void> CudaMemory::fill(DeviceAddress address, int byte, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  if (Result<void> ok =
          commands.fill(address, static_cast<uint8_t>(byte), bytes, "a tensor");
      !ok)
    return ok;
  return commands.synchronize("filling memory");
}
