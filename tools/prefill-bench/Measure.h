// Runs rows through Google Benchmark and keeps every sample.
#ifndef PREFILL_TOOLS_PREFILLBENCH_MEASURE_H
#define PREFILL_TOOLS_PREFILLBENCH_MEASURE_H

#include "Group.h"

#include <functional>
#include <string>
#include <vector>

namespace prefill::bench {

/// What one row gave.
struct Series {
  Row row;
  Peak peak;
  std::string variant;
  std::string peerNote;
  std::vector<Sample> samples;
};

/// Runs all rows of a group `rounds` times, round by round: within a round each
/// row once, in the order given, so that drift of the machine hits all alike.
/// Each run is a benchmark of Google Benchmark with one iteration and manual
/// time. `report` gets each series as soon as its group is done.
Result<std::vector<Series>>
measure(const std::vector<Row> &rows, int rounds, ModuleStore &store,
        PeakProbe &probe, const std::function<void(const Series &)> &report);

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_MEASURE_H
