// Files that appear complete or not at all.
#ifndef PREFILL_CHECKPOINT_NAMELESSFILE_H
#define PREFILL_CHECKPOINT_NAMELESSFILE_H

#include "prefill/checkpoint/Result.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace prefill::rt {

/// The file that opening `path` for writing would make or change: where its
/// last part is a symbolic link, what that names, which need not exist.
std::string followLinks(const std::string &path);

/// A regular file that has no name until commit(), which puts it into the place
/// of what is there; a link to the file stays one. It vanishes with the
/// process, even when that is killed. (On a filesystem that has no such files
/// it has a temporary name, which the destructor takes away.)
class NamelessFile {
public:
  explicit NamelessFile(const std::string &path);
  NamelessFile(const NamelessFile &) = delete;
  NamelessFile &operator=(const NamelessFile &) = delete;
  ~NamelessFile();

  /// Takes the space at once, so that a full disk is known before the work.
  Result<void> create(uint64_t bytes = 0);
  int descriptor() const { return fd; }
  Result<void> writeAt(const std::byte *data, uint64_t size, uint64_t offset);
  /// `durable`: on the disk before it has the name.
  Result<void> commit(bool durable);

private:
  Error fail(const std::string &why) const;
  Result<void> giveTemporaryName();

  std::string target, directory, temporary;
  int fd = -1;
};

} // namespace prefill::rt

#endif // PREFILL_CHECKPOINT_NAMELESSFILE_H
