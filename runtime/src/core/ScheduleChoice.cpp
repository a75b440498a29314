#include "core/ScheduleChoice.h"

#include <algorithm>
#include <map>

using namespace prefill;
using namespace prefill::rt;

uint32_t prefill::rt::findSchedule(const module::Plan &plan, int64_t rows) {
  const auto &schedules = *plan.schedules();
  uint32_t index = 0;
  while (index + 1 < schedules.size() && rows > schedules[index]->max_rows())
    ++index;
  return index;
}

const module::Schedule &prefill::rt::lastSchedule(const module::Plan &plan) {
  return *plan.schedules()->Get(plan.schedules()->size() - 1);
}

int64_t prefill::rt::padRows(const module::Schedule &schedule, int64_t rows) {
  const auto &buckets = *schedule.row_buckets();
  for (int32_t bucket : buckets)
    if (rows <= bucket)
      return bucket;
  int64_t last = buckets[buckets.size() - 1];
  return (rows + last - 1) / last * last;
}

int64_t prefill::rt::kernelsPerLayer(const module::Schedule &schedule) {
  std::map<int32_t, int64_t> counts; // by layer
  int64_t largest = 0;
  for (const module::Launch *launch : *schedule.launches())
    if (launch->layer() >= 0)
      largest = std::max(largest, ++counts[launch->layer()]);
  return largest;
}
