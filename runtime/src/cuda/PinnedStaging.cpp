#include "cuda/PinnedStaging.h"

#include <algorithm>
#include <cstring>

using namespace prefill::rt;
using namespace prefill::rt::cuda;

Result<PinnedStaging> PinnedStaging::create(const CommandStream &commands,
                                            uint64_t chunkBytes) {
  std::optional<Chunk> made[2];
  for (std::optional<Chunk> &chunk : made) {
    Result<PinnedBuffer> memory = PinnedBuffer::allocate(
        commands.device(), chunkBytes, "a chunk for copies");
    if (!memory)
      return memory.takeError();
    Result<Event> copied =
        Event::create(commands.device(), Event::Purpose::order);
    if (!copied)
      return copied.takeError();
    chunk.emplace(Chunk{std::move(*memory), std::move(*copied)});
  }
  return PinnedStaging(commands, std::move(*made[0]), std::move(*made[1]));
}

PinnedStaging::~PinnedStaging() {
  // Also what was enqueued when recording its event failed.
  if (chunks[0].memory.data())
    (void)commands->synchronize("the last copies");
}

Result<void> PinnedStaging::upload(CUdeviceptr to, const void *from,
                                   uint64_t bytes, const std::string &what) {
  const std::byte *source = static_cast<const std::byte *>(from);
  while (bytes) {
    Chunk &chunk = chunks[next];
    next = (next + 1) % chunks.size();
    uint64_t count = std::min(bytes, chunk.memory.size());
    if (Result<void> ok = chunk.copied.wait(); !ok)
      return ok;
    std::memcpy(chunk.memory.data(), source, count);
    if (Result<void> ok =
            commands->upload(to, chunk.memory.data(), count, what);
        !ok)
      return ok;
    if (Result<void> ok = chunk.copied.record(*commands); !ok)
      return ok;
    source += count;
    to += count;
    bytes -= count;
  }
  return {};
}

Result<void> PinnedStaging::download(void *to, CUdeviceptr from, uint64_t bytes,
                                     const std::string &what) {
  // The chunks take turns: the host copies out of one while the device fills
  // the other.
  std::byte *target = static_cast<std::byte *>(to);
  Chunk *filled = nullptr;
  uint64_t filledBytes = 0;
  while (bytes || filled) {
    Chunk *filling = nullptr;
    uint64_t count = 0;
    if (bytes) {
      filling = &chunks[next];
      next = (next + 1) % chunks.size();
      count = std::min(bytes, filling->memory.size());
      if (Result<void> ok = filling->copied.wait(); !ok)
        return ok;
      if (Result<void> ok =
              commands->download(filling->memory.data(), from, count, what);
          !ok)
        return ok;
      if (Result<void> ok = filling->copied.record(*commands); !ok)
        return ok;
      from += count;
      bytes -= count;
    }
    if (filled) {
      if (Result<void> ok = filled->copied.wait(); !ok)
        return ok;
      std::memcpy(target, filled->memory.data(), filledBytes);
      target += filledBytes;
    }
    filled = filling;
    filledBytes = count;
  }
  return {};
}
