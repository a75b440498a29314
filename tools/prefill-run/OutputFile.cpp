#include "OutputFile.h"
#include "prefill/checkpoint/Quote.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

using namespace prefill::run;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::quote;
using prefill::rt::Result;

std::string prefill::run::followLinks(const std::string &path) {
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

Error OutputFile::failure(const char *action) const {
  return Error{ErrorCode::io, std::string("cannot ") + action + " " +
                                  quote(path) + ": " + std::strerror(errno)};
}

Result<OutputFile> OutputFile::create(const std::string &path) {
  OutputFile output;
  output.path = path;
  struct stat status;
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    // A device or a pipe cannot be replaced: write straight to it.
    output.file = std::fopen(path.c_str(), "wbe");
    if (!output.file)
      return output.failure("write");
    return output;
  }
  output.path = followLinks(path);
  std::string pattern = output.path + ".XXXXXX";
  int descriptor = ::mkstemp(pattern.data());
  if (descriptor < 0)
    return output.failure("write");
  output.temporaryPath = pattern;
  mode_t mask = ::umask(0); // mkstemp made it private
  ::umask(mask);
  if (::fchmod(descriptor, 0666 & ~mask) != 0 ||
      !(output.file = ::fdopen(descriptor, "wb"))) {
    Error error = output.failure("write");
    ::close(descriptor);
    return error;
  }
  return output;
}

OutputFile::OutputFile(OutputFile &&other) noexcept
    : path(std::move(other.path)),
      temporaryPath(std::exchange(other.temporaryPath, {})),
      file(std::exchange(other.file, nullptr)) {}

OutputFile::~OutputFile() {
  if (file)
    std::fclose(file);
  if (!temporaryPath.empty())
    ::unlink(temporaryPath.c_str());
}

Result<void> OutputFile::write(const void *data, size_t size) {
  if (std::fwrite(data, 1, size, file) != size)
    return failure("write");
  return {};
}

Result<void> OutputFile::commit() {
  if (std::fclose(std::exchange(file, nullptr)) != 0)
    return failure("write");
  if (!temporaryPath.empty()) {
    if (std::rename(temporaryPath.c_str(), path.c_str()) != 0)
      return failure("rename to");
    temporaryPath.clear();
  }
  return {};
}
