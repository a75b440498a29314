#include "prefill/checkpoint/NamelessFile.h"
#include "prefill/checkpoint/Quote.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

using namespace prefill::rt;

std::string prefill::rt::followLinks(const std::string &path) {
  std::filesystem::path current = path;
  std::error_code error;
  for (int links = 0; links < 40; ++links) { // as many as the kernel follows
    std::filesystem::path target =
        std::filesystem::read_symlink(current, error);
    if (error)
      return current.string();
    current = current.parent_path() / target; // an absolute target stays alone
  }
  return path;
}

NamelessFile::NamelessFile(const std::string &path)
    : target(followLinks(path)),
      directory(std::filesystem::path(target).parent_path().string()) {
  if (directory.empty())
    directory = ".";
}

NamelessFile::~NamelessFile() {
  if (!temporary.empty())
    ::unlink(temporary.c_str());
  if (fd >= 0)
    ::close(fd);
}

Error NamelessFile::fail(const std::string &why) const {
  return Error{ErrorCode::io, "cannot write " + quote(target) + ": " + why};
}

Result<void> NamelessFile::create(uint64_t bytes) {
  // Rename would put a file into the place of whatever is there.
  struct stat status;
  if (::stat(target.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return fail("it is not a regular file");
  fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    temporary = target + ".XXXXXX";
    fd = ::mkostemp(temporary.data(), O_CLOEXEC);
    if (fd < 0)
      temporary.clear();
    else if (::fchmod(fd, 0644) != 0)
      return fail(std::strerror(errno));
  }
  if (fd < 0)
    return fail(std::strerror(errno));
  // A filesystem without the call finds out while writing.
  if (bytes && ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0 &&
      errno != EOPNOTSUPP)
    return fail(std::strerror(errno));
  return {};
}

Result<void> NamelessFile::writeAt(const std::byte *data, uint64_t size,
                                   uint64_t offset) {
  while (size > 0) {
    ssize_t count = ::pwrite(fd, data, size, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return fail(std::strerror(errno));
    data += count;
    size -= static_cast<uint64_t>(count);
    offset += static_cast<uint64_t>(count);
  }
  return {};
}

/// linkat does not replace: the file gets a name of its own first, which two
/// writers do not share.
Result<void> NamelessFile::giveTemporaryName() {
  std::string unnamed = "/proc/self/fd/" + std::to_string(fd);
  for (int attempt = 0;; ++attempt) {
    std::string name = target + "." + std::to_string(::getpid()) + "-" +
                       std::to_string(attempt);
    if (::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name.c_str(),
                 AT_SYMLINK_FOLLOW) == 0) {
      temporary = name;
      return {};
    }
    if (errno != EEXIST || attempt == 1000)
      return fail(std::strerror(errno));
  }
}

Result<void> NamelessFile::commit(bool durable) {
  if (durable && ::fsync(fd) != 0)
    return fail(std::strerror(errno));
  if (temporary.empty())
    if (Result<void> ok = giveTemporaryName(); !ok)
      return ok;
  if (::rename(temporary.c_str(), target.c_str()) != 0)
    return fail(std::strerror(errno));
  temporary.clear();
  return {};
}
