// The way of many bytes to the device: through two pinned chunks, one of which
// is filled while the other is on its way.
#ifndef PREFILL_RUNTIME_CUDA_PINNEDSTAGING_H
#define PREFILL_RUNTIME_CUDA_PINNEDSTAGING_H

#include "cuda/DeviceBuffer.h"
#include "cuda/Event.h"

#include <array>
#include <optional>

namespace prefill::rt::cuda {

class PinnedStaging {
public:
  static constexpr uint64_t defaultChunkBytes = uint64_t(8) << 20;

  /// `commands` outlives it.
  static Result<PinnedStaging> create(const CommandStream &commands,
                                      uint64_t chunkBytes = defaultChunkBytes);
  PinnedStaging(PinnedStaging &&) = default;
  PinnedStaging &operator=(PinnedStaging &&) = delete;
  ~PinnedStaging();

  /// `from` is the caller's again when it returns; the bytes are there when
  /// the stream has come past.
  Result<void> upload(CUdeviceptr to, const void *from, uint64_t bytes,
                      const std::string &what);
  /// The bytes are in `to` when it returns.
  Result<void> download(void *to, CUdeviceptr from, uint64_t bytes,
                        const std::string &what);

private:
  struct Chunk {
    PinnedBuffer memory;
    /// Of the last copy out of the memory.
    Event copied;
  };
  PinnedStaging(const CommandStream &commands, Chunk first, Chunk second)
      : commands(&commands), chunks{std::move(first), std::move(second)} {}

  const CommandStream *commands;
  std::array<Chunk, 2> chunks;
  size_t next = 0;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_PINNEDSTAGING_H
