// Which of a plan's schedules runs a call.
#ifndef PREFILL_RUNTIME_CORE_SCHEDULECHOICE_H
#define PREFILL_RUNTIME_CORE_SCHEDULECHOICE_H

#include "prefill/module_generated.h"

#include <cstdint>

namespace prefill::rt {

/// Index of the first schedule of a verified plan for calls of `rows` tokens.
uint32_t findSchedule(const module::Plan &plan, int64_t rows);

/// The schedule for calls of any length.
const module::Schedule &lastSchedule(const module::Plan &plan);

/// Rows that kernels see for `rows` rows of data: the smallest bucket that
/// holds them, above the last bucket a multiple of it.
int64_t padRows(const module::Schedule &schedule, int64_t rows);

/// The largest number of launches that carry one layer's index.
int64_t kernelsPerLayer(const module::Schedule &schedule);

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_SCHEDULECHOICE_H
