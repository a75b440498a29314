// A stream of the device: copies, fills and launches, one after the other.
#ifndef PREFILL_RUNTIME_CUDA_COMMANDSTREAM_H
#define PREFILL_RUNTIME_CUDA_COMMANDSTREAM_H

#include "cuda/CudaDevice.h"

#include <string>

namespace prefill::rt::cuda {

/// Does not wait for the default stream, nor that for it. The functions enqueue
/// and return; `what` completes their errors.
class CommandStream {
public:
  static Result<CommandStream> create(const CudaDevice &device);
  CommandStream(CommandStream &&other) noexcept;
  CommandStream &operator=(CommandStream &&other) noexcept;
  /// What was enqueued is done first.
  ~CommandStream();

  const CudaDevice &device() const { return *owner; }
  CUstream handle() const { return stream; }

  /// `from` must stay as it is until the stream has come past.
  Result<void> upload(CUdeviceptr to, const void *from, uint64_t bytes,
                      const std::string &what) const;
  /// `to` is written when the stream has come past.
  Result<void> download(void *to, CUdeviceptr from, uint64_t bytes,
                        const std::string &what) const;
  Result<void> fill(CUdeviceptr to, uint8_t value, uint64_t bytes,
                    const std::string &what) const;

  /// Waits for everything on the stream. Errors of earlier asynchronous work
  /// come out here.
  Result<void> synchronize(const std::string &what) const;

private:
  CommandStream(const CudaDevice &owner, CUstream stream)
      : owner(&owner), stream(stream) {}

  const CudaDevice *owner;
  CUstream stream;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_COMMANDSTREAM_H
