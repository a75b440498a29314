// What a run measured, for people and for programs.
#ifndef PREFILL_TOOLS_PREFILLRUN_REPORT_H
#define PREFILL_TOOLS_PREFILLRUN_REPORT_H

#include "prefill/runtime.h"

#include <cstdint>
#include <string>
#include <vector>

namespace prefill::run {

struct LaunchRecord {
  prefill_launch_info info;
  uint64_t startNs = 0, durationNs = 0; ///< start: from that of the first call
};

/// One call into the session.
struct CallRecord {
  std::string name; ///< "prefill 0..128", "decode 129"
  uint64_t startNs, durationNs;
  int64_t kernelsPerLayer;
  std::vector<LaunchRecord> launches;
  std::string counters; ///< JSON of prefill_session_counters; empty: none
};

struct RunRecord {
  prefill_module_info info{};
  std::string variant;
  prefill_memory memory{};
  int64_t numTokens = 0;    ///< of the prompt
  uint64_t flops = 0;       ///< of the prompt
  double startMs = 0;       ///< from the start of the program to the first call
  std::string weightsCache; ///< the file that the weights came from, or ""
  double ttftMs = 0;        ///< prompt in, logits of its last token out
  double decodeMs = 0;      ///< of all decode steps
  std::vector<int32_t> generated;
  std::vector<CallRecord> calls; ///< not empty
};

/// The object of --stats=json.
std::string statsJson(const RunRecord &run);
/// Chrome's trace event format: one row for calls, one for launches.
std::string chromeTrace(const RunRecord &run);
/// A table for people.
std::string summary(const RunRecord &run);

/// "12.3 MiB".
std::string formatBytes(double bytes);

} // namespace prefill::run

#endif // PREFILL_TOOLS_PREFILLRUN_REPORT_H
