#include "OutputFile.h"
#include "prefill/checkpoint/Quote.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace prefill::run;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::NamelessFile;
using prefill::rt::quote;
using prefill::rt::Result;

Error OutputFile::failure() const {
  return Error{ErrorCode::io,
               "cannot write " + quote(path) + ": " + std::strerror(errno)};
}

Result<OutputFile> OutputFile::create(const std::string &path) {
  OutputFile output;
  output.path = path;
  struct stat status;
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    output.file = std::fopen(path.c_str(), "wbe");
    if (!output.file)
      return output.failure();
    return output;
  }
  output.nameless = std::make_unique<NamelessFile>(path);
  if (Result<void> ok = output.nameless->create(); !ok)
    return ok.takeError();
  // The stream closes a descriptor of its own.
  int descriptor =
      ::fcntl(output.nameless->descriptor(), F_DUPFD_CLOEXEC, /*least=*/3);
  if (descriptor < 0 || !(output.file = ::fdopen(descriptor, "wb"))) {
    Error error = output.failure();
    if (descriptor >= 0)
      ::close(descriptor);
    return error;
  }
  return output;
}

OutputFile::OutputFile(OutputFile &&other) noexcept
    : path(std::move(other.path)), nameless(std::move(other.nameless)),
      file(std::exchange(other.file, nullptr)) {}

OutputFile::~OutputFile() {
  if (file)
    std::fclose(file);
}

Result<void> OutputFile::write(const void *data, size_t size) {
  if (std::fwrite(data, 1, size, file) != size)
    return failure();
  return {};
}

Result<void> OutputFile::commit() {
  if (std::fclose(std::exchange(file, nullptr)) != 0)
    return failure();
  return nameless ? nameless->commit(/*durable=*/false) : Result<void>();
}
