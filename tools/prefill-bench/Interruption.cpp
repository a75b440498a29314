#include "Interruption.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <set>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char **environ;

namespace {

/// Held for good by the thread that cleans up, so that nothing is made after.
std::mutex mutex;
std::set<std::string> files;
pid_t tool = -1;

sigset_t endingSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action;
    // Who ignores a signal, as nohup does, is not ended by it.
    if (::sigaction(signal, nullptr, &action) == 0 &&
        action.sa_handler != SIG_IGN)
      ::sigaddset(&signals, signal);
  }
  return signals;
}

[[noreturn]] void endBy(int signal) {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, signal);
  ::signal(signal, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  ::raise(signal);
  std::_Exit(128 + signal);
}

void waitForSignal(sigset_t signals) {
  int signal = 0;
  while (::sigwait(&signals, &signal) != 0)
    ;
  mutex.lock();
  if (tool > 0) {
    // It removes its own temporary files first.
    ::kill(tool, SIGTERM);
    while (::waitpid(tool, nullptr, 0) < 0 && errno == EINTR)
      ;
  }
  for (const std::string &file : files)
    ::unlink(file.c_str());
  endBy(signal);
}

} // namespace

void prefill::bench::watchForInterruption() {
  sigset_t signals = endingSignals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread(waitForSignal, signals).detach();
}

prefill::bench::TemporaryFile::TemporaryFile(std::string path)
    : name(std::move(path)) {
  std::lock_guard lock(mutex);
  files.insert(name);
}

prefill::bench::TemporaryFile::~TemporaryFile() {
  std::lock_guard lock(mutex);
  ::unlink(name.c_str());
  files.erase(name);
}

int prefill::bench::runToEnd(const char *program, char *const *arguments,
                             int errorDescriptor, int &status) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                     O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null",
                                     O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, errorDescriptor, STDERR_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  int error;
  {
    std::lock_guard lock(mutex);
    error = ::posix_spawn(&tool, program, &actions, &attributes, arguments,
                          environ);
    if (error)
      tool = -1;
  }
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error)
    return error;
  // Its end is looked at without reaping it: until `tool` is reset the number
  // belongs to it.
  siginfo_t info;
  while (::waitid(P_PID, tool, &info, WEXITED | WNOWAIT) < 0)
    if (errno != EINTR)
      return errno;
  std::lock_guard lock(mutex);
  while (::waitpid(tool, &status, 0) < 0)
    if (errno != EINTR)
      return errno;
  tool = -1;
  return 0;
}
