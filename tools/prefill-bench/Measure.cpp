#include "Measure.h"

#include <benchmark/benchmark.h>
#include <map>
#include <memory>

using namespace prefill::bench;
using prefill::rt::Error;
using prefill::rt::ErrorCode;

namespace {

/// Names of the counters that a run carries to the reporter.
constexpr const char *workCounter = "work", *peakCounter = "peak",
                     *cpuShareCounter = "cpu_share",
                     *compileCounter = "compile_seconds",
                     *peerSecondsCounter = "peer_seconds",
                     *peerPeakCounter = "peer_peak",
                     *secondPeakCounter = "second_peak",
                     *quantizeCounter = "quantize_seconds";

/// Prints nothing: files the runs under their rows.
class SampleReporter : public benchmark::BenchmarkReporter {
public:
  explicit SampleReporter(std::map<std::string, Series *> series)
      : series(std::move(series)) {}

  bool ReportContext(const Context &) override { return true; }

  void ReportRuns(const std::vector<Run> &runs) override {
    for (const Run &run : runs) {
      if (run.error_occurred) {
        if (error.empty())
          error = run.run_name.function_name + ": " + run.error_message;
        continue;
      }
      auto counter = [&](const char *name) -> std::optional<double> {
        auto found = run.counters.find(name);
        if (found == run.counters.end())
          return std::nullopt;
        return found->second.value;
      };
      series.at(run.run_name.function_name)
          ->samples.push_back(
              {run.real_accumulated_time, *counter(workCounter),
               *counter(peakCounter), *counter(cpuShareCounter),
               counter(peerSecondsCounter), counter(peerPeakCounter),
               counter(secondPeakCounter), counter(quantizeCounter),
               counter(compileCounter)});
    }
  }

  std::string error; ///< of the first run that failed

private:
  std::map<std::string, Series *> series;
};

void runOnce(benchmark::State &state, Group &group, const Row &row) {
  for (auto _ : state) {
    Result<Sample> sample = group.run(row);
    if (!sample) {
      state.SkipWithError(sample.error().message.c_str());
      return;
    }
    state.SetIterationTime(sample->seconds);
    state.counters[workCounter] = sample->work;
    state.counters[peakCounter] = sample->peak;
    state.counters[cpuShareCounter] = sample->cpuShare;
    if (sample->secondPeak)
      state.counters[secondPeakCounter] = *sample->secondPeak;
    if (sample->quantizeSeconds)
      state.counters[quantizeCounter] = *sample->quantizeSeconds;
    if (sample->compileSeconds)
      state.counters[compileCounter] = *sample->compileSeconds;
    if (sample->peerSeconds) {
      state.counters[peerSecondsCounter] = *sample->peerSeconds;
      state.counters[peerPeakCounter] = *sample->peerPeak;
    }
  }
}

Result<std::vector<Series>> measureGroup(const std::vector<Row> &rows,
                                         int rounds, ModuleStore &store,
                                         PeakProbe &probe) {
  auto group = Group::create(rows, store, probe);
  if (!group)
    return group.takeError();
  std::vector<Series> all;
  for (const Row &row : rows)
    all.push_back({row,
                   (*group)->peak(row),
                   (*group)->variant(),
                   (*group)->peerNote(row),
                   {}});
  std::map<std::string, Series *> byName;
  benchmark::ClearRegisteredBenchmarks();
  for (Series &series : all) {
    byName[series.row.name] = &series;
    benchmark::RegisterBenchmark(
        series.row.name.c_str(),
        [&](benchmark::State &state) { runOnce(state, **group, series.row); })
        ->Iterations(1)
        ->UseManualTime();
  }
  SampleReporter reporter(byName);
  for (int round = 0; round < rounds && reporter.error.empty(); ++round)
    benchmark::RunSpecifiedBenchmarks(&reporter, ".");
  benchmark::ClearRegisteredBenchmarks();
  if (!reporter.error.empty())
    return Error{ErrorCode::io, reporter.error};
  return all;
}

} // namespace

Result<std::vector<Series>>
prefill::bench::measure(const std::vector<Row> &rows, int rounds,
                        ModuleStore &store, PeakProbe &probe,
                        const std::function<void(const Series &)> &report) {
  // Rows of a group need not lie side by side in the catalogue.
  std::vector<std::string> order;
  std::map<std::string, std::vector<Row>> groups;
  for (const Row &row : rows) {
    std::vector<Row> &group = groups[row.group()];
    if (group.empty())
      order.push_back(row.group());
    group.push_back(row);
  }
  std::vector<Series> all;
  for (const std::string &name : order) {
    Result<std::vector<Series>> series =
        measureGroup(groups[name], rounds, store, probe);
    if (!series)
      return series.takeError();
    for (Series &one : *series) {
      report(one);
      all.push_back(std::move(one));
    }
  }
  return all;
}
