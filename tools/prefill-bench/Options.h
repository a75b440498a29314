// The command line of prefill-bench.
#ifndef PREFILL_TOOLS_PREFILLBENCH_OPTIONS_H
#define PREFILL_TOOLS_PREFILLBENCH_OPTIONS_H

#include "prefill/checkpoint/Result.h"

#include <optional>
#include <string>
#include <vector>

namespace prefill::bench {

struct Options {
  std::optional<std::string> filter;
  int threads = 1;
  int rounds = 9;
  std::optional<std::string> json;
  std::string device = "cpu";
  std::string isa; ///< that all rows are forced to; empty: the best for each
  bool tune = false;
  double tuneThreshold = 2; ///< per cent
  bool measureMachine = false;
  std::vector<std::string> shapes; ///< to tune for; empty: Llama's
  // Of --tune on a GPU.
  int candidates = 8;
  bool compileOnly = false;
  std::string binaries; ///< where the compiler's tools lie
  std::string modules;  ///< empty: the user's cache directory
  bool list = false, help = false, version = false;
};

/// Accepts `--option value` and `--option=value`. Refused, naming what is
/// valid: unknown options, values out of range, options that contradict each
/// other.
rt::Result<Options> parseOptions(int argc, char **argv);

std::string usage();

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_OPTIONS_H
