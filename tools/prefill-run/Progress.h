// How far loading the weights has come, on standard error.
#ifndef PREFILL_TOOLS_PREFILLRUN_PROGRESS_H
#define PREFILL_TOOLS_PREFILLRUN_PROGRESS_H

#include <chrono>
#include <cstdint>

namespace prefill::run {

/// On a terminal a bar that redraws itself; elsewhere nothing, unless loading
/// takes longer than a second: then a line at every quarter.
class Progress {
public:
  Progress();
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  /// A prefill_progress_fn; `user` is the Progress.
  static void report(const char *phase, uint64_t done, uint64_t total,
                     void *user);

private:
  using Clock = std::chrono::steady_clock;
  void show(const char *phase, uint64_t done, uint64_t total);

  bool terminal;
  bool drawn = false;
  uint64_t nextQuarter = 0;
  Clock::time_point start, lastDrawn;
};

} // namespace prefill::run

#endif // PREFILL_TOOLS_PREFILLRUN_PROGRESS_H
