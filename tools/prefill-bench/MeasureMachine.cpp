#include "MeasureMachine.h"
#include "Report.h"

#include <cmath>
#include <nlohmann/json.hpp>

using namespace prefill::bench;
using prefill::rt::hostSupports;
using prefill::rt::IsaVariant;

namespace {

constexpr int rounds = 9;

/// What a cache holds for sure, beside code and stack: half of it, in pieces
/// that readStream takes.
size_t halfOf(size_t cache) { return cache / 2 / 4096 * 4096; }

/// Of an arithmetic peak.
struct Factors {
  const char *dtype;
  IsaVariant isa;
};
Factors factorsOf(Peak peak) {
  switch (peak) {
  case Peak::fmaZmm:
    return {"f32", IsaVariant::avx512};
  case Peak::dotBf16Zmm:
    return {"bf16", IsaVariant::avx512_bf16};
  case Peak::dotInt8Ymm:
    return {"int8", IsaVariant::avx_vnni};
  case Peak::dotInt8Zmm:
    return {"int8", IsaVariant::avx512_vnni};
  case Peak::tileBf16:
    return {"bf16", IsaVariant::amx_bf16};
  default:
    return {"f32", IsaVariant::avx2};
  }
}

} // namespace

MachineMeasurement prefill::bench::measureMachine(int maxThreads) {
  MachineMeasurement result;
  std::vector<Peak> peaks = {Peak::fmaYmm};
  if (hostSupports(IsaVariant::avx_vnni))
    peaks.push_back(Peak::dotInt8Ymm);
  if (hostSupports(IsaVariant::avx512))
    peaks.push_back(Peak::fmaZmm);
  if (hostSupports(IsaVariant::avx512_vnni))
    peaks.push_back(Peak::dotInt8Zmm);
  if (hostSupports(IsaVariant::avx512_bf16))
    peaks.push_back(Peak::dotBf16Zmm);
  if (hostSupports(IsaVariant::amx_bf16))
    peaks.push_back(Peak::tileBf16);
  for (Peak peak : peaks)
    result.arithmetic.push_back({peak, {}});
  CacheSizes caches = cacheSizes();

  for (int threads = 1; threads <= maxThreads; ++threads) {
    PeakProbe probe(threads);
    std::vector<std::vector<double>> flops(peaks.size());
    std::vector<double> memory, l2, l3;
    for (int round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < peaks.size(); ++i)
        flops[i].push_back(probe.measure(peaks[i]));
      memory.push_back(probe.measure(Peak::readBandwidth));
      if (caches.l2)
        l2.push_back(probe.readBandwidth(halfOf(caches.l2)));
      // The last cache is shared.
      if (caches.l3)
        l3.push_back(probe.readBandwidth(halfOf(caches.l3 / threads)));
    }
    for (size_t i = 0; i < peaks.size(); ++i)
      result.arithmetic[i].flops.push_back(quantile(flops[i], 0.5));
    result.memory.push_back(quantile(memory, 0.5));
    if (!l2.empty())
      result.l2.push_back(quantile(l2, 0.5));
    if (!l3.empty())
      result.l3.push_back(quantile(l3, 0.5));
  }
  return result;
}

std::string
prefill::bench::machineToJson(const MachineMeasurement &measurement) {
  auto giga = [](const std::vector<double> &values) {
    std::vector<double> scaled;
    for (double value : values)
      scaled.push_back(std::round(value / 1e8) / 10);
    return scaled;
  };
  CacheSizes caches = cacheSizes();
  nlohmann::ordered_json json;
  json["name"] = cpuSlug();
  json["cpu"] = cpuName();
  json["target"] = "cpu";
  json["isa"] = rt::stringify(bestVariant());
  json["threads"] = measurement.memory.size();
  json["cache_bytes"] = {
      {"l1d", caches.l1d}, {"l2", caches.l2}, {"l3", caches.l3}};
  nlohmann::ordered_json peaks = nlohmann::ordered_json::array();
  for (const auto &[peak, flops] : measurement.arithmetic)
    peaks.push_back({{"instruction", stringify(peak)},
                     {"dtype", factorsOf(peak).dtype},
                     {"isa", rt::stringify(factorsOf(peak).isa)},
                     {"gflops", giga(flops)}});
  json["peaks"] = peaks;
  json["read_gbytes_per_s"] = {{"memory", giga(measurement.memory)},
                               {"l2", giga(measurement.l2)},
                               {"l3", giga(measurement.l3)}};
  return json.dump(1) + "\n";
}
