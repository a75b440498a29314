// The memory of a GPU as the runtime's core takes it.
#ifndef PREFILL_RUNTIME_CUDA_CUDAMEMORY_H
#define PREFILL_RUNTIME_CUDA_CUDAMEMORY_H

#include "core/Memory.h"
#include "cuda/DeviceBuffer.h"
#include "cuda/PinnedStaging.h"

#include <memory>
#include <mutex>
#include <unordered_map>

namespace prefill::rt::cuda {

/// On a stream of its own, for which every function waits: other streams need
/// not be ordered behind it. What they still work on must not be given back.
class CudaMemory : public DeviceMemory {
public:
  static Result<std::unique_ptr<CudaMemory>> create(const CudaDevice &device);

  bool isHost() const override { return false; }
  Result<DeviceAddress> take(uint64_t bytes) override;
  void giveBack(DeviceAddress address, uint64_t bytes) override;
  Result<void> upload(DeviceAddress to, const void *from,
                      uint64_t bytes) override;
  Result<void> download(void *to, DeviceAddress from,
                        uint64_t bytes) const override;
  Result<void> fill(DeviceAddress address, int byte, uint64_t bytes) override;

private:
  explicit CudaMemory(CommandStream commands) : commands(std::move(commands)) {}

  CommandStream commands;
  mutable std::mutex mutex; ///< of what follows
  mutable std::unique_ptr<PinnedStaging> staging;
  std::unordered_map<DeviceAddress, DeviceBuffer> buffers;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_CUDAMEMORY_H
