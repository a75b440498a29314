#include "Statistics.h"

#include <algorithm>

using namespace prefill::bench;

double prefill::bench::quantile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  double at = fraction * double(values.size() - 1);
  size_t below = static_cast<size_t>(at);
  size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - double(below)) * (values[above] - values[below]);
}

Summary prefill::bench::summarize(const std::vector<double> &values) {
  double median = quantile(values, 0.5);
  return {median, (quantile(values, 0.75) - quantile(values, 0.25)) / median};
}
