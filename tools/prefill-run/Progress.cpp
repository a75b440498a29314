#include "Progress.h"

#include <cstdio>
#include <string>
#include <unistd.h>

using namespace prefill::run;

Progress::Progress() : terminal(::isatty(STDERR_FILENO)), start(Clock::now()) {}

Progress::~Progress() {
  if (terminal && drawn) // wipe the bar: what follows starts on a clean line
    std::fprintf(stderr, "\r\033[K");
}

void Progress::report(const char *phase, uint64_t done, uint64_t total,
                      void *user) {
  static_cast<Progress *>(user)->show(phase, done, total);
}

void Progress::show(const char *phase, uint64_t done, uint64_t total) {
  if (total == 0)
    return;
  Clock::time_point now = Clock::now();
  double fraction = double(done) / double(total);
  double megabytes = double(total) / 1e6;
  if (terminal) {
    if (done < total && drawn &&
        now - lastDrawn < std::chrono::milliseconds(50))
      return;
    constexpr int width = 30;
    std::string bar(static_cast<size_t>(fraction * width), '#');
    std::fprintf(stderr, "\r%-4s [%-*s] %3.0f %% of %.0f MB", phase, width,
                 bar.c_str(), fraction * 100, megabytes);
    std::fflush(stderr);
    drawn = true;
    lastDrawn = now;
    return;
  }
  uint64_t quarter = static_cast<uint64_t>(fraction * 4);
  if (now - start < std::chrono::seconds(1) || quarter < nextQuarter)
    return;
  nextQuarter = quarter + 1;
  std::fprintf(stderr, "%s weights: %3.0f %% of %.0f MB\n", phase,
               fraction * 100, megabytes);
}
