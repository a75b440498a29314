// --counters: what an emulated run asked of the memory, for people.
#ifndef PREFILL_TOOLS_PREFILLRUN_COUNTERSTABLE_H
#define PREFILL_TOOLS_PREFILLRUN_COUNTERSTABLE_H

#include "Report.h"

#include <string>

namespace prefill::run {

/// One line for each kernel, all its launches together, in the order of the
/// plan, then one for each of its sites that touch memory.
std::string countersTable(const RunRecord &run);

} // namespace prefill::run

#endif // PREFILL_TOOLS_PREFILLRUN_COUNTERSTABLE_H
