#include "Report.h"

#include <nlohmann/json.hpp>

#include <cstdarg>
#include <cstdio>
#include <utility>

using namespace prefill::run;
using nlohmann::ordered_json;

namespace {

__attribute__((format(printf, 1, 2))) std::string format(const char *pattern,
                                                         ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(line, sizeof line, pattern, arguments);
  va_end(arguments);
  return line;
}

/// Decode steps that were run: the last token comes from the step before.
size_t numDecodeCalls(const RunRecord &run) {
  return run.generated.empty() ? 0 : run.generated.size() - 1;
}

} // namespace

std::string prefill::run::formatBytes(double bytes) {
  const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  char text[64];
  std::snprintf(text, sizeof text, "%.*f %s", unit ? 1 : 0, bytes, units[unit]);
  return text;
}

std::string prefill::run::statsJson(const RunRecord &run) {
  ordered_json stats;
  stats["ttft_ms"] = run.ttftMs;
  stats["tokens"] = run.numTokens;
  stats["flops"] = run.flops;
  stats["kernels_per_layer"] = run.calls.front().kernelsPerLayer;
  stats["launches"] = ordered_json::array();
  // Of every call: a chunk, a decode step.
  for (const CallRecord &call : run.calls)
    for (const LaunchRecord &launch : call.launches)
      stats["launches"].push_back({{"name", launch.info.name},
                                   {"layer", launch.info.layer},
                                   {"call", call.name}});
  stats["memory"] = {
      {"weights_bytes", run.memory.weights_bytes},
      {"activation_peak_bytes", run.memory.activation_peak_bytes},
      {"kv_cache_bytes", run.memory.kv_cache_bytes},
      {"temporaries_bytes", run.memory.temporaries_bytes}};
  stats["variant"] = run.variant;
  stats["start_ms"] = run.startMs;
  stats["weights_cache"] = run.weightsCache;
  for (const CallRecord &call : run.calls) {
    if (call.counters.empty())
      continue;
    ordered_json launches = ordered_json::parse(call.counters);
    for (ordered_json &launch : launches) {
      launch["call"] = call.name;
      stats["counters"].push_back(std::move(launch));
    }
  }
  if (!run.generated.empty()) {
    stats["generated"] = run.generated;
    stats["decode_ms"] = run.decodeMs;
  }
  return stats.dump(2, ' ', false, ordered_json::error_handler_t::replace) +
         "\n";
}

std::string prefill::run::chromeTrace(const RunRecord &run) {
  ordered_json events = ordered_json::array();
  auto span = [&](const std::string &name, int thread, uint64_t startNs,
                  uint64_t durationNs, ordered_json arguments) {
    events.push_back({{"name", name},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", thread},
                      {"ts", double(startNs) / 1e3},
                      {"dur", double(durationNs) / 1e3},
                      {"args", std::move(arguments)}});
  };
  for (auto [thread, name] : {std::pair{1, "calls"}, {2, "launches"}})
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 1},
                      {"tid", thread},
                      {"args", {{"name", name}}}});
  for (const CallRecord &call : run.calls) {
    span(call.name, 1, call.startNs, call.durationNs, ordered_json::object());
    for (const LaunchRecord &launch : call.launches)
      span(launch.info.name, 2, launch.startNs, launch.durationNs,
           ordered_json{{"layer", launch.info.layer}});
  }
  ordered_json trace = {{"traceEvents", std::move(events)},
                        {"displayTimeUnit", "ms"}};
  return trace.dump(-1, ' ', false, ordered_json::error_handler_t::replace) +
         "\n";
}

std::string prefill::run::summary(const RunRecord &run) {
  double seconds = run.ttftMs / 1e3;
  std::string text = format(
      "time to first token  %.2f ms for %lld tokens, %.0f tokens/s, "
      "%.1f GFLOP/s\n",
      run.ttftMs, static_cast<long long>(run.numTokens),
      double(run.numTokens) / seconds, double(run.flops) / seconds / 1e9);
  if (size_t steps = numDecodeCalls(run))
    text += format("decode               %.2f ms a token, %.1f tokens/s\n",
                   run.decodeMs / double(steps),
                   double(steps) / run.decodeMs * 1e3);
  text += "memory               weights " +
          formatBytes(double(run.memory.weights_bytes)) + ", activation peak " +
          formatBytes(double(run.memory.activation_peak_bytes)) +
          ", KV cache " + formatBytes(double(run.memory.kv_cache_bytes)) +
          ", temporaries " + formatBytes(double(run.memory.temporaries_bytes)) +
          "\n";
  text +=
      format("kernels              %lld a layer, %lld layers, %lld launches "
             "(%s)\n",
             static_cast<long long>(run.calls.front().kernelsPerLayer),
             static_cast<long long>(run.info.num_layers),
             static_cast<long long>(run.calls.front().launches.size()),
             run.variant.c_str());
  return text;
}
