// What the machine can do at best, measured beside every timed run.
#ifndef PREFILL_TOOLS_PREFILLBENCH_PEAKPROBE_H
#define PREFILL_TOOLS_PREFILLBENCH_PEAKPROBE_H

#include "cpu/IsaVariant.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace prefill::bench {

/// The denominators of ratios: loops over registers that touch no memory, a
/// stream from a buffer far larger than the caches, and for startup rows, which
/// PeakProbe has no part in, the start that has nothing prepared.
enum class Peak {
  fmaYmm,        ///< vfmadd231ps ymm
  fmaZmm,        ///< vfmadd231ps zmm
  dotBf16Zmm,    ///< vdpbf16ps zmm
  dotInt8Ymm,    ///< vpdpbusd ymm
  dotInt8Zmm,    ///< vpdpbusd zmm
  tileBf16,      ///< tdpbf16ps of whole tiles
  readBandwidth, ///< loads of whole vectors from huge pages
  firstStart,    ///< starts a second
};
/// "vfmadd231ps ymm", ..., "streaming read".
const char *stringify(Peak peak);

/// The peak of kernels that the code of `variant` runs in `dtype`: bf16 has
/// instructions faster than the f32 FMA on AVX-512-BF16 and AMX, int8 wherever
/// there is VNNI.
Peak arithmeticPeak(std::string_view dtype, rt::IsaVariant variant);

/// What else rows are compared with. bf16 rows with vdpbf16ps where the host
/// has it and, left to itself, runs something faster; int8 rows with what
/// multiplies bf16 in `variant`, unless that is their own peak.
std::optional<Peak> secondPeak(std::string_view dtype, rt::IsaVariant variant);

/// Runs the loops on a fixed number of threads at once.
class PeakProbe {
public:
  explicit PeakProbe(int threads);
  PeakProbe(const PeakProbe &) = delete;
  PeakProbe &operator=(const PeakProbe &) = delete;
  ~PeakProbe();

  int threads() const { return numThreads; }

  /// FLOP/s, or bytes/s for readBandwidth: the sum over the threads, each with
  /// the best of three slices of 1 ms (or one pass over its part of the buffer)
  /// while all run. The instructions must be supported by the host.
  double measure(Peak peak);

  /// The same loads over `bytes` of each thread's own memory, again and again:
  /// the bandwidth of the cache that holds them.
  double readBandwidth(size_t bytesPerThread);

  struct Timing {
    double seconds;  ///< of the work
    double peak;     ///< the larger of the probe before and the one after
    double cpuShare; ///< CPU time of the process / (seconds * threads)
    /// The second one, the larger of two as well, where it was asked for.
    std::optional<double> secondPeak = {};
  };
  /// Times `work` between two probes; `second`: and two of that around them.
  Timing time(Peak peak, const std::function<void()> &work,
              std::optional<Peak> second = {});

private:
  /// Runs body(thread) on every thread, started together; returns the sum of
  /// what they return.
  double onAllThreads(const std::function<double(int)> &body);
  void workerLoop(int thread);
  void startTogether();
  void prepareStream();

  const int numThreads;
  std::vector<std::thread> workers;
  std::vector<double> rates;
  const std::function<double(int)> *job = nullptr;
  std::atomic<uint32_t> generation{0};
  std::atomic<int> arrived{0}, finished{0};
  std::atomic<bool> stopping{false};

  std::vector<std::byte *> mappings;
  std::vector<std::byte *> streams; ///< the buffer of each thread, in them
  size_t streamBytes = 0;           ///< of one thread
};

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_PEAKPROBE_H
