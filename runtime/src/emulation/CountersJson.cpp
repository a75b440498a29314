#include "emulation/CountersJson.h"

#include <nlohmann/json.hpp>

using namespace prefill::rt::emulation;
using nlohmann::ordered_json;

namespace {

const char *kindName(SiteKind kind) {
  switch (kind) {
  case SiteKind::load:
    return "load";
  case SiteKind::store:
    return "store";
  case SiteKind::asyncCopy:
    return "async_copy";
  case SiteKind::loadMatrix:
    return "load_matrix";
  case SiteKind::mma:
    return "mma";
  case SiteKind::barrier:
    return "barrier";
  case SiteKind::syncWarp:
    return "sync_warp";
  case SiteKind::shuffle:
    return "shuffle";
  case SiteKind::vote:
    return "vote";
  case SiteKind::redux:
    return "redux";
  case SiteKind::commitGroup:
    return "commit_group";
  case SiteKind::waitGroup:
    return "wait_group";
  case SiteKind::gridDependency:
    return "grid_dependency";
  }
  return "?";
}

} // namespace

std::string
prefill::rt::emulation::countersJson(const LaunchIdentity &launch,
                                     const LaunchCounters &counters) {
  ordered_json object = {
      {"name", launch.name},
      {"kernel", launch.kernel},
      {"layer", launch.layer},
      {"workgroups", launch.workgroups},
      {"global_load_bytes", counters.globalLoadBytes},
      {"global_store_bytes", counters.globalStoreBytes},
      {"load_sectors", counters.loadSectors},
      {"store_sectors", counters.storeSectors},
      {"distinct_load_sectors", counters.distinctLoadSectors},
      {"distinct_store_sectors", counters.distinctStoreSectors},
      {"bank_conflicts", counters.bankConflicts},
      {"matrix_instructions", counters.matrixInstructions},
      {"matrix_loads", counters.matrixLoads},
      {"shuffles", counters.shuffles},
      {"barriers", counters.barriers}};
  ordered_json sites = ordered_json::array();
  for (const NamedCounters &site : counters.sites) {
    ordered_json entry = {{"name", site.name}, {"kind", kindName(site.kind)}};
    const SiteCounters &sums = site.counters;
    for (auto [key, value] : {std::pair{"requests", sums.requests},
                              {"threads", sums.threads},
                              {"global_bytes", sums.globalBytes},
                              {"sectors", sums.sectors},
                              {"distinct_sectors", sums.distinctSectors},
                              {"shared_bytes", sums.sharedBytes},
                              {"shared_passes", sums.sharedPasses},
                              {"bank_conflicts", sums.bankConflicts}})
      if (value)
        entry[key] = value;
    sites.push_back(std::move(entry));
  }
  object["sites"] = std::move(sites);
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}
