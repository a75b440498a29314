// The inner loops of the peak probes.
#ifndef PREFILL_TOOLS_PREFILLBENCH_PROBELOOPS_H
#define PREFILL_TOOLS_PREFILLBENCH_PROBELOOPS_H

#include "PeakProbe.h"

#include <cstddef>
#include <cstdint>

namespace prefill::bench {

/// A loop of independent multiply-accumulates on registers alone: 24
/// accumulators, 12 where there are 16 registers, 4 of the 8 tiles.
struct ArithmeticLoop {
  void (*run)(int64_t repetitions);
  double flops; ///< of one repetition
};
/// Not for Peak::readBandwidth. The host must have the instructions.
ArithmeticLoop arithmeticLoop(Peak peak);

/// Loads every byte once, in the widest vectors of the host. `memory` is
/// 64-byte aligned; `bytes` is a multiple of 1024.
void readStream(const std::byte *memory, size_t bytes);

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_PROBELOOPS_H
