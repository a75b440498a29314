#include "prefill/checkpoint/MappedFile.h"
#include "prefill/checkpoint/Quote.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace prefill::rt;

Result<MappedFile> MappedFile::open(const std::string &path) {
  // Without O_NONBLOCK a pipe that nobody writes to would hang here, before it
  // can be told apart. Regular files do not know the flag.
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return Error{ErrorCode::io,
                 "cannot open " + quote(path) + ": " + std::strerror(errno)};
  struct stat status;
  std::string problem;
  void *mapping = nullptr;
  if (::fstat(descriptor, &status) != 0) {
    problem = std::strerror(errno);
  } else if (!S_ISREG(status.st_mode)) {
    problem = "not a regular file";
  } else if (status.st_size > 0) {
    mapping = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ,
                     MAP_PRIVATE, descriptor, 0);
    if (mapping == MAP_FAILED)
      problem = std::strerror(errno);
  }
  ::close(descriptor);
  if (!problem.empty())
    return Error{ErrorCode::io, "cannot read " + quote(path) + ": " + problem};
  return MappedFile(static_cast<const std::byte *>(mapping),
                    static_cast<uint64_t>(status.st_size),
                    int64_t(status.st_mtim.tv_sec) * 1'000'000'000 +
                        status.st_mtim.tv_nsec);
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : bytes(std::exchange(other.bytes, nullptr)),
      length(std::exchange(other.length, 0)), modified(other.modified) {}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(bytes, other.bytes);
  std::swap(length, other.length);
  std::swap(modified, other.modified);
  return *this;
}

MappedFile::~MappedFile() {
  if (bytes)
    ::munmap(const_cast<std::byte *>(bytes), length);
}
