#include "Report.h"
#include "Machine.h"
#include "MatmulPeer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

using namespace prefill::bench;

namespace {

template <typename Function>
std::vector<double> map(const std::vector<Sample> &samples, Function function) {
  std::vector<double> values;
  for (const Sample &sample : samples)
    values.push_back(function(sample));
  return values;
}

/// How the work of a row is called.
struct Unit {
  const char *work;  ///< "flops"; nullptr where there is none to speak of
  const char *rate;  ///< of 10^9 in a second
  const char *label; ///< in the table, of 10^9
};
Unit unitOf(const Series &series) {
  switch (series.peak) {
  case Peak::readBandwidth:
    return {"bytes", "gbytes_per_s", "B"};
  case Peak::firstStart:
    return {nullptr, nullptr, ""};
  default:
    return {"flops", "gflops", "FL"};
  }
}

/// Ours over the peer's, each against its own probes.
std::optional<Summary> againstPeer(const Series &series) {
  if (!series.samples.front().peerSeconds)
    return std::nullopt;
  return summarize(map(series.samples, [](const Sample &sample) {
    return sample.ratio() / sample.peerRatio();
  }));
}

double medianSeconds(const Series &series) {
  return summarize(
             map(series.samples, [](const Sample &s) { return s.seconds; }))
      .median;
}

/// 10^9 FLOPs or bytes a second.
double medianRate(const Series &series) {
  return summarize(
             map(series.samples,
                 [](const Sample &s) { return s.work / s.seconds / 1e9; }))
      .median;
}

double medianPeak(const Series &series) {
  return summarize(
             map(series.samples, [](const Sample &s) { return s.peak / 1e9; }))
      .median;
}

Summary ratioOf(const Series &series) {
  return summarize(
      map(series.samples, [](const Sample &s) { return s.ratio(); }));
}

/// "vdpbf16ps": what secondPeak's loop is made of.
std::string secondInstruction(const Series &series) {
  std::string text = stringify(*secondPeak(
      series.row.dtype, *prefill::rt::parseIsaVariant(series.variant)));
  return text.substr(0, text.find(' '));
}

/// As many digits as mean something.
double rounded(double value, int digits) {
  if (value == 0 || !std::isfinite(value))
    return value;
  double scale =
      std::pow(10, digits - 1 - std::floor(std::log10(std::fabs(value))));
  return std::round(value * scale) / scale;
}

} // namespace

std::string prefill::bench::tableHead() {
  char line[200];
  std::snprintf(line, sizeof line, "%-44s %6s %7s %10s %11s %8s %7s\n", "row",
                "ratio", "spread", "G/s", "ms", "oneDNN", "rounds");
  return line;
}

std::string prefill::bench::tableLine(const Series &series) {
  Summary ratio = ratioOf(series);
  char peer[32] = "", line[300];
  if (std::optional<Summary> against = againstPeer(series))
    std::snprintf(peer, sizeof peer, "%.3fx", against->median);
  Unit unit = unitOf(series);
  char rate[32] = "";
  if (unit.work)
    std::snprintf(rate, sizeof rate, "%.1f %s", medianRate(series), unit.label);
  std::snprintf(line, sizeof line, "%-44s %6.3f %6.1f%% %10s %11.3f %8s %7zu\n",
                series.row.name.c_str(), ratio.median, 100 * ratio.spread, rate,
                1e3 * medianSeconds(series), peer, series.samples.size());
  return line;
}

std::string prefill::bench::toJson(const std::vector<Series> &all,
                                   int threads) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Series &series : all) {
    Summary ratio = ratioOf(series);
    nlohmann::ordered_json row;
    row["name"] = series.row.name;
    row["ratio"] = rounded(ratio.median, 5);
    row["spread"] = rounded(ratio.spread, 3);
    row["rounds"] = series.samples.size();
    row["threads"] = threads;
    row["seconds"] = rounded(medianSeconds(series), 6);
    if (series.row.kind == RowKind::model) {
      row["ttft_ms"] = rounded(1e3 * medianSeconds(series), 6);
      row["tokens_per_s"] =
          rounded(double(series.row.tokens) / medianSeconds(series), 6);
    }
    row["probe"] = stringify(series.peak);
    const Sample &sample = series.samples.front();
    if (Unit unit = unitOf(series); unit.work) {
      row[unit.work] = sample.work;
      row[unit.rate] = rounded(medianRate(series), 5);
      row[std::string("probe_") + unit.rate] = rounded(medianPeak(series), 5);
    } else {
      row["first_seconds"] = rounded(1e-9 / medianPeak(series), 5);
      row["compile_seconds"] = rounded(*sample.compileSeconds, 4);
    }
    if (sample.secondPeak) {
      auto ratio = [](const Sample &s) {
        return s.work / s.seconds / *s.secondPeak;
      };
      row[secondInstruction(series) + "_ratio"] =
          rounded(summarize(map(series.samples, ratio)).median, 5);
    }
    if (sample.quantizeSeconds) {
      auto seconds = [](const Sample &s) { return *s.quantizeSeconds; };
      row["quantize_seconds"] =
          rounded(summarize(map(series.samples, seconds)).median, 4);
    }
    row["cpu_share"] =
        rounded(summarize(map(series.samples,
                              [](const Sample &s) { return s.cpuShare; }))
                    .median,
                4);
    row["dtype"] = series.row.dtype;
    row["isa"] = series.variant;
    row["kv_layout"] = series.row.layout;
    if (series.row.peer) {
      if (std::optional<Summary> against = againstPeer(series)) {
        row["onednn_ratio"] = rounded(against->median, 5);
        row["onednn_spread"] = rounded(against->spread, 3);
        row["onednn_version"] = MatmulPeer::version();
        row["onednn_isa"] = MatmulPeer::isa();
      } else {
        row["onednn_ratio"] = nullptr;
        row["onednn_missing"] = series.peerNote;
      }
    }
    row["ratios"] = map(series.samples, [](const Sample &sample) {
      return rounded(sample.ratio(), 5);
    });
    row["cpu"] = cpuName();
    rows.push_back(std::move(row));
  }
  return rows.dump(1) + "\n";
}
