// What is told about the samples.
#ifndef PREFILL_TOOLS_PREFILLBENCH_REPORT_H
#define PREFILL_TOOLS_PREFILLBENCH_REPORT_H

#include "Measure.h"
#include "Statistics.h"

#include <string>
#include <vector>

namespace prefill::bench {

/// The table's head, and one line for a row.
std::string tableHead();
std::string tableLine(const Series &series);

/// The list of rows that --json writes; docs/performance.md has its fields.
std::string toJson(const std::vector<Series> &all, int threads);

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_REPORT_H
