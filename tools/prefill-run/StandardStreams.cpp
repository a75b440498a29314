#include "StandardStreams.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

using namespace prefill::run;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::Result;

void prefill::run::prepareStandardStreams() {
  for (int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF)
      continue;
    // The lowest free number is this one: those below are open by now.
    int opened =
        ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != descriptor)
      ::close(opened);
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

Result<void> prefill::run::print(const std::string &text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0)
    return Error{ErrorCode::io,
                 std::string("cannot write to standard output: ") +
                     std::strerror(errno)};
  return {};
}
