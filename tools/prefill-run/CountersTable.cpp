#include "CountersTable.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <map>
#include <utility>
#include <vector>

using namespace prefill::run;
using nlohmann::json;

namespace {

using Sums = std::map<std::string, uint64_t>;

struct KernelSums {
  std::string name;
  uint64_t launches = 0;
  Sums sums;
  std::vector<std::pair<std::string, Sums>> sites;
};

void add(Sums &sums, const json &object) {
  for (const auto &[key, value] : object.items())
    if (value.is_number_unsigned())
      sums[key] += value.get<uint64_t>();
}

template <typename Entries>
auto &entry(Entries &entries, const std::string &name) {
  for (auto &[known, value] : entries)
    if (known == name)
      return value;
  entries.emplace_back(name, Sums());
  return entries.back().second;
}

std::vector<KernelSums> sumUp(const RunRecord &run) {
  std::vector<KernelSums> kernels;
  for (const CallRecord &call : run.calls) {
    if (call.counters.empty())
      continue;
    for (const json &launch : json::parse(call.counters)) {
      std::string name = launch["kernel"];
      KernelSums *kernel = nullptr;
      for (KernelSums &known : kernels)
        if (known.name == name)
          kernel = &known;
      if (!kernel) {
        kernels.push_back({name, 0, {}, {}});
        kernel = &kernels.back();
      }
      ++kernel->launches;
      add(kernel->sums, launch);
      for (const json &site : launch["sites"])
        add(entry(kernel->sites, site["name"].get<std::string>() + " " +
                                     site["kind"].get<std::string>()),
            site);
    }
  }
  return kernels;
}

std::string row(const std::string &name,
                const std::vector<std::string> &cells) {
  char text[64];
  std::snprintf(text, sizeof text, "%-44s", name.c_str());
  std::string line = name.size() > 44 ? name : text;
  for (const std::string &cell : cells) {
    std::snprintf(text, sizeof text, " %13s", cell.c_str());
    line += text;
  }
  return line + "\n";
}

} // namespace

std::string prefill::run::countersTable(const RunRecord &run) {
  constexpr uint64_t sectorBytes = 32;
  std::string table =
      row("counters", {"launches", "global bytes", "sector bytes", "distinct",
                       "conflicts", "mma", "barriers"});
  for (KernelSums &kernel : sumUp(run)) {
    Sums &sums = kernel.sums;
    auto number = [](uint64_t value) { return std::to_string(value); };
    table += row(
        kernel.name,
        {number(kernel.launches),
         number(sums["global_load_bytes"] + sums["global_store_bytes"]),
         number((sums["load_sectors"] + sums["store_sectors"]) * sectorBytes),
         number(
             (sums["distinct_load_sectors"] + sums["distinct_store_sectors"]) *
             sectorBytes),
         number(sums["bank_conflicts"]), number(sums["matrix_instructions"]),
         number(sums["barriers"])});
    for (auto &[name, site] : kernel.sites)
      if (site["global_bytes"] || site["bank_conflicts"])
        table +=
            row("  " + name, {"", number(site["global_bytes"]),
                              number(site["sectors"] * sectorBytes),
                              number(site["distinct_sectors"] * sectorBytes),
                              number(site["bank_conflicts"])});
  }
  return table;
}
