// Counters of a launch for programs: docs/emulator.md names the keys.
#ifndef PREFILL_RUNTIME_EMULATION_COUNTERSJSON_H
#define PREFILL_RUNTIME_EMULATION_COUNTERSJSON_H

#include "emulation/Counters.h"

#include <string>

namespace prefill::rt::emulation {

/// What tells one launch of a plan from the others.
struct LaunchIdentity {
  std::string name, kernel;
  int64_t layer, workgroups;
};

/// A JSON object. Counters that are 0 are left out of `sites`.
std::string countersJson(const LaunchIdentity &launch,
                         const LaunchCounters &counters);

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_COUNTERSJSON_H
