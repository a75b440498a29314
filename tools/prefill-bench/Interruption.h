// What a signal that ends the process may not leave behind: files with a name
// for the time being, and a tool that was started.
#ifndef PREFILL_TOOLS_PREFILLBENCH_INTERRUPTION_H
#define PREFILL_TOOLS_PREFILLBENCH_INTERRUPTION_H

#include <string>
#include <sys/types.h>

namespace prefill::bench {

/// From here on a thread of its own waits for SIGINT, SIGTERM and SIGHUP: it
/// ends the running tool, removes the temporary files and lets the signal end
/// the process. Call it before any other thread is started, once.
void watchForInterruption();

/// A file that is removed on every way out.
class TemporaryFile {
public:
  explicit TemporaryFile(std::string path);
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;
  ~TemporaryFile();

  const std::string &path() const { return name; }

private:
  std::string name;
};

/// Starts a program as posix_spawn does, with the signals that it would have
/// without watchForInterruption(), and waits for its end. Returns an errno when
/// it cannot be started, else 0 and its status.
int runToEnd(const char *program, char *const *arguments, int errorDescriptor,
             int &status);

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_INTERRUPTION_H
