// The command line of prefill-run.
#ifndef PREFILL_TOOLS_PREFILLRUN_OPTIONS_H
#define PREFILL_TOOLS_PREFILLRUN_OPTIONS_H

#include "prefill/checkpoint/Result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace prefill::run {

struct Options {
  std::string module;
  std::optional<std::string> weights;
  std::optional<uint64_t> randomWeights;
  std::optional<std::string> weightsCache; ///< a file, or "off"
  bool verifyWeightsCache = false;
  std::optional<std::string> tokens, tokensFile, text;
  int64_t decode = 0;
  int64_t chunk = 0; ///< 0: the prompt in one call
  int threads = 0;
  std::optional<std::string> deviceName; ///< as given
  std::string device() const { return deviceName.value_or("cpu"); }
  uint64_t emulationSeed = 0;
  bool counters = false, countOnly = false;
  std::optional<std::string> isa;
  std::optional<std::string> logitsOut, profile, saveKV;
  std::optional<std::string> extractCode; ///< a directory
  bool allLogits = false, describe = false, poison = false, statsJson = false;
  bool help = false, version = false;
};

/// Accepts `--option value` and `--option=value`. Refused, naming what is
/// valid: unknown options and values, options without their value, options
/// that contradict each other, a run that lacks weights or a prompt.
rt::Result<Options> parseOptions(int argc, char **argv);

const char *usage();

/// A decimal integer in [low, high] that fills the whole text.
rt::Result<int64_t> parseInteger(const std::string &what,
                                 const std::string &text, int64_t low,
                                 int64_t high);

/// Token ids separated by white space or by one comma each, at least one. A
/// comma with no token before or after it is an error that names the place.
rt::Result<std::vector<int32_t>> parseTokens(const std::string &what,
                                             const std::string &text);

} // namespace prefill::run

#endif // PREFILL_TOOLS_PREFILLRUN_OPTIONS_H
