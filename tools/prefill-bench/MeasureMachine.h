// --measure-machine: the peaks of this machine.
#ifndef PREFILL_TOOLS_PREFILLBENCH_MEASUREMACHINE_H
#define PREFILL_TOOLS_PREFILLBENCH_MEASUREMACHINE_H

#include "Machine.h"
#include "PeakProbe.h"

#include <string>
#include <vector>

namespace prefill::bench {

struct MachineMeasurement {
  /// FLOP/s for 1, 2, ... threads.
  struct Arithmetic {
    Peak peak;
    std::vector<double> flops;
  };
  std::vector<Arithmetic> arithmetic; ///< of what the host has
  /// Bytes/s for 1, 2, ... threads; of the caches each thread over memory of
  /// its own.
  std::vector<double> memory, l2, l3;
};

/// Each number is the median of nine measurements, taken in turn.
MachineMeasurement measureMachine(int maxThreads);

std::string machineToJson(const MachineMeasurement &measurement);

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_MEASUREMACHINE_H
