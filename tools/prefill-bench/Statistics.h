// Of samples.
#ifndef PREFILL_TOOLS_PREFILLBENCH_STATISTICS_H
#define PREFILL_TOOLS_PREFILLBENCH_STATISTICS_H

#include <vector>

namespace prefill::bench {

/// The value at a fraction of the sorted values, interpolated linearly. There
/// is at least one.
double quantile(std::vector<double> values, double fraction);

/// Median, and the distance of the quartiles over the median.
struct Summary {
  double median, spread;
};
Summary summarize(const std::vector<double> &values);

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_STATISTICS_H
