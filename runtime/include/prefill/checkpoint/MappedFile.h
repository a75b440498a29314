// A file mapped read-only into memory.
#ifndef PREFILL_CHECKPOINT_MAPPEDFILE_H
#define PREFILL_CHECKPOINT_MAPPEDFILE_H

#include "prefill/checkpoint/Result.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace prefill::rt {

/// The mapping lives as long as the object; moving it keeps the address. An
/// empty file has data() == nullptr.
class MappedFile {
public:
  static Result<MappedFile> open(const std::string &path);

  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;
  ~MappedFile();

  const std::byte *data() const { return bytes; }
  uint64_t size() const { return length; }
  /// When the file was last modified, in nanoseconds since 1970.
  int64_t modifiedNs() const { return modified; }

private:
  MappedFile(const std::byte *data, uint64_t size, int64_t modifiedNs)
      : bytes(data), length(size), modified(modifiedNs) {}

  const std::byte *bytes = nullptr;
  uint64_t length = 0;
  int64_t modified = 0;
};

} // namespace prefill::rt

#endif // PREFILL_CHECKPOINT_MAPPEDFILE_H
