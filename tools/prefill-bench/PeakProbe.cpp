#include "PeakProbe.h"
#include "Machine.h"
#include "ProbeLoops.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <new>
#include <sys/mman.h>

using namespace prefill::bench;
using prefill::rt::IsaVariant;

namespace {

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Of one slice. The best of several counts: an interruption of the probe must
/// not make a kernel look better than it is.
constexpr double sliceSeconds = 1e-3;
constexpr int numSlices = 3;
constexpr size_t hugePage = size_t(2) << 20;
/// About 20 us at one instruction a cycle: the clock is read between.
constexpr int64_t loopsPerChunk = 2500;

/// FLOP/s of one thread.
double arithmeticRate(Peak peak) {
  ArithmeticLoop loop = arithmeticLoop(peak);
  double best = 0;
  for (int slice = 0; slice < numSlices; ++slice) {
    double start = now(), end = start;
    int64_t chunks = 0;
    do {
      loop.run(loopsPerChunk);
      ++chunks;
      end = now();
    } while (end - start < sliceSeconds);
    best = std::max(best, double(chunks) * double(loopsPerChunk) * loop.flops /
                              (end - start));
  }
  return best;
}

/// CPU time of all threads of this process.
double cpuNow() {
  timespec time;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

} // namespace

const char *prefill::bench::stringify(Peak peak) {
  switch (peak) {
  case Peak::fmaYmm:
    return "vfmadd231ps ymm";
  case Peak::fmaZmm:
    return "vfmadd231ps zmm";
  case Peak::dotBf16Zmm:
    return "vdpbf16ps zmm";
  case Peak::tileBf16:
    return "tdpbf16ps tmm";
  case Peak::dotInt8Ymm:
    return "vpdpbusd ymm";
  case Peak::dotInt8Zmm:
    return "vpdpbusd zmm";
  case Peak::readBandwidth:
    return "streaming read";
  case Peak::firstStart:
    break;
  }
  return "first start";
}

Peak prefill::bench::arithmeticPeak(std::string_view dtype,
                                    IsaVariant variant) {
  bool bf16 = dtype == "bf16", int8 = dtype == "int8";
  switch (variant) {
  case IsaVariant::avx2:
    return Peak::fmaYmm;
  case IsaVariant::avx_vnni:
    return int8 ? Peak::dotInt8Ymm : Peak::fmaYmm;
  case IsaVariant::avx512:
    return Peak::fmaZmm;
  case IsaVariant::avx512_vnni:
    return int8 ? Peak::dotInt8Zmm : Peak::fmaZmm;
  case IsaVariant::avx512_bf16:
    return int8 ? Peak::dotInt8Zmm : bf16 ? Peak::dotBf16Zmm : Peak::fmaZmm;
  case IsaVariant::amx_bf16:
    break;
  }
  return int8 ? Peak::dotInt8Zmm : bf16 ? Peak::tileBf16 : Peak::fmaZmm;
}

std::optional<Peak> prefill::bench::secondPeak(std::string_view dtype,
                                               IsaVariant variant) {
  if (dtype == "int8") {
    Peak floats = arithmeticPeak("bf16", variant);
    if (floats != arithmeticPeak(dtype, variant))
      return floats;
  }
  if (dtype == "bf16" && variant != IsaVariant::avx512_bf16 &&
      variant == bestVariant() && rt::hostSupports(IsaVariant::avx512_bf16))
    return Peak::dotBf16Zmm;
  return std::nullopt;
}

PeakProbe::PeakProbe(int threads) : numThreads(threads), rates(threads) {
  for (int thread = 1; thread < threads; ++thread)
    workers.emplace_back([this, thread] { workerLoop(thread); });
}

PeakProbe::~PeakProbe() {
  stopping = true;
  ++generation;
  generation.notify_all();
  for (std::thread &worker : workers)
    worker.join();
  for (std::byte *mapping : mappings)
    ::munmap(mapping, streamBytes + hugePage);
}

void PeakProbe::workerLoop(int thread) {
  uint32_t seen = 0;
  while (true) {
    generation.wait(seen);
    seen = generation.load();
    if (stopping)
      return;
    startTogether();
    rates[thread] = (*job)(thread);
    ++finished;
    finished.notify_one();
  }
}

void PeakProbe::startTogether() {
  ++arrived;
  while (arrived.load() < numThreads)
    std::this_thread::yield();
}

double PeakProbe::onAllThreads(const std::function<double(int)> &body) {
  job = &body;
  arrived = 0;
  finished = 0;
  ++generation;
  generation.notify_all();
  startTogether();
  rates[0] = body(0);
  for (int done = finished; done < numThreads - 1; done = finished)
    finished.wait(done);
  double sum = 0;
  for (double rate : rates)
    sum += rate;
  return sum;
}

void PeakProbe::prepareStream() {
  if (!streams.empty())
    return;
  // Eight times the last cache, so that nothing of one pass is left for the
  // next.
  constexpr size_t page = hugePage, least = size_t(256) << 20,
                   most = size_t(2) << 30;
  size_t total = std::clamp(8 * cacheSizes().l3, least, most);
  streamBytes = (total / numThreads + page - 1) / page * page;
  for (int thread = 0; thread < numThreads; ++thread) {
    // A huge page more than needed, so that the part in use begins with one.
    void *memory = ::mmap(nullptr, streamBytes + page, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      throw std::bad_alloc();
    mappings.push_back(static_cast<std::byte *>(memory));
    auto address = reinterpret_cast<uintptr_t>(memory);
    std::byte *aligned =
        mappings.back() + ((address + page - 1) / page * page - address);
    ::madvise(aligned, streamBytes, MADV_HUGEPAGE);
    streams.push_back(aligned);
  }
  // Written by the threads that read them: first touch.
  onAllThreads([this](int thread) {
    std::memset(streams[thread], 1, streamBytes);
    return 0.0;
  });
}

double PeakProbe::measure(Peak peak) {
  if (peak != Peak::readBandwidth)
    return onAllThreads([peak](int) { return arithmeticRate(peak); });
  prepareStream();
  return onAllThreads([this](int thread) {
    double start = now();
    readStream(streams[thread], streamBytes);
    return double(streamBytes) / (now() - start);
  });
}

double PeakProbe::readBandwidth(size_t bytesPerThread) {
  prepareStream();
  size_t bytes = std::min(bytesPerThread, streamBytes);
  return onAllThreads([&](int thread) {
    readStream(streams[thread], bytes); // into the cache
    double start = now(), end = start;
    int64_t passes = 0;
    do {
      readStream(streams[thread], bytes);
      ++passes;
      end = now();
    } while (end - start < 10 * sliceSeconds);
    return double(bytes) * double(passes) / (end - start);
  });
}

PeakProbe::Timing PeakProbe::time(Peak peak, const std::function<void()> &work,
                                  std::optional<Peak> second) {
  double secondBefore = second ? measure(*second) : 0;
  double before = measure(peak);
  double cpuStart = cpuNow(), start = now();
  work();
  double seconds = now() - start, cpuSeconds = cpuNow() - cpuStart;
  Timing timing{seconds, std::max(before, measure(peak)),
                cpuSeconds / seconds / numThreads};
  if (second)
    timing.secondPeak = std::max(secondBefore, measure(*second));
  return timing;
}
