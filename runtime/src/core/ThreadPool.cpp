#include "core/ThreadPool.h"
#include "core/CpuQuota.h"

#include <algorithm>
#include <sched.h>

using namespace prefill::rt;

namespace {

/// Chunks for each thread, at least. The largest chunk bounds how long a launch
/// waits for a thread that lost its processor in the middle of one.
constexpr int64_t chunksPerThread = 8;

/// A position past the end of every launch.
constexpr uint64_t closed = UINT32_MAX;

/// Tells the processor that this is a loop that waits.
void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

} // namespace

ThreadPool::ThreadPool(Placement placement)
    : placed(std::move(placement)), numThreads(placed.numThreads()),
      maySpin(numThreads <= defaultSize()),
      shares(new Share[placed.numShares()]) {
  for (int i = 0; i < placed.numShares(); ++i)
    shares[i].threads = placed.threadsOf(i);
  workers.reserve(numThreads - 1);
  try {
    for (int thread = 1; thread < numThreads; ++thread)
      workers.emplace_back([this, thread] { workerLoop(thread); });
  } catch (...) { // the system is out of threads: end those that started
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping = true;
  ++generation;
  generation.notify_all();
  for (std::thread &worker : workers)
    worker.join();
}

template <typename Condition>
bool ThreadPool::spinUntil(Condition condition) const {
  if (!maySpin)
    return false;
  constexpr int looksBetweenClocks = 16;
  auto end = std::chrono::steady_clock::now() + spinBudget;
  do {
    for (int look = 0; look < looksBetweenClocks; ++look) {
      if (condition())
        return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void ThreadPool::run(int64_t count, const Body &body, int64_t grain) {
  if (count <= 0)
    return;
  std::lock_guard<std::mutex> lock(turn);
  // One thread takes the range whole: a kernel may then reuse what it sets up
  // for a range. One workgroup is not worth waking anybody.
  if (numThreads == 1 || count == 1) {
    body(0, 0, count);
    return;
  }
  // A late thread that still looks at the last launch must not claim a part of
  // it once `units` changes: close the counter before anything else.
  int numShares = placed.numShares();
  uint64_t launch = (shares[0].next >> 32) + 1;
  for (int i = 0; i < numShares; ++i)
    shares[i].next = launch << 32 | closed;
  this->body = &body;
  this->count = count;
  unit = (count >> 31) + 1;
  int64_t numUnits = (count + unit - 1) / unit;
  grainUnits = std::max<int64_t>(1, grain / unit);
  unfinished = static_cast<uint32_t>(numUnits);
  for (int i = 0; i < numShares; ++i) {
    shares[i].first = placed.begin(i, numUnits, grainUnits);
    shares[i].units =
        placed.begin(i + 1, numUnits, grainUnits) - shares[i].first;
  }
  for (int i = 0; i < numShares; ++i)
    shares[i].next = launch << 32;
  ++generation;
  generation.notify_all();

  takeChunks(0);
  auto done = [&] { return unfinished == 0; };
  if (!spinUntil(done))
    while (uint32_t left = unfinished)
      unfinished.wait(left);
}

/// Of the chunk at `position` with `left` units behind it: a part of a
/// thread's share, and towards the end a part of what is left.
int64_t ThreadPool::chunkSize(const Share &share, int64_t position,
                              int64_t left) const {
  int64_t largest = (position + left) / (share.threads * chunksPerThread);
  int64_t size = std::clamp<int64_t>(left / (2 * share.threads), 1,
                                     std::max<int64_t>(1, largest));
  int64_t grain = grainUnits.load(std::memory_order_relaxed);
  // Up to the next multiple of the grain that is at least half a chunk away.
  if (size * 2 > grain)
    size = (position + size + grain / 2) / grain * grain - position;
  return std::clamp<int64_t>(size, 1, left);
}

void ThreadPool::takeChunks(int thread) {
  // The own node's share first; what others have not done by then costs more
  // where they are than here.
  int numShares = placed.numShares();
  for (int i = 0; i < numShares; ++i)
    takeChunks(shares[(placed.share(thread) + i) % numShares], thread);
}

void ThreadPool::takeChunks(Share &share, int thread) {
  uint64_t state = share.next;
  for (;;) {
    int64_t position = static_cast<uint32_t>(state);
    int64_t left = share.units.load(std::memory_order_relaxed) - position;
    if (left <= 0)
      return;
    int64_t size = chunkSize(share, position, left);
    if (!share.next.compare_exchange_weak(state, state + size))
      continue;
    int64_t begin = (share.first + position) * unit;
    (*body)(thread, begin, std::min(begin + size * unit, count));
    // run() may return from here on.
    if (unfinished.fetch_sub(static_cast<uint32_t>(size)) == size)
      unfinished.notify_one();
    state = share.next;
  }
}

void ThreadPool::workerLoop(int thread) {
  placed.pinCallingThread(thread);
  uint32_t seen = 0;
  for (;;) {
    if (!spinUntil([&] { return generation != seen; }))
      generation.wait(seen);
    seen = generation;
    if (stopping)
      return;
    // Behind `seen`: a launch that begins from here on changes `generation`.
    takeChunks(thread);
  }
}

int ThreadPool::availableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

int ThreadPool::defaultSize(const std::string &root) {
  int processors = availableProcessors();
  return std::min(processors, cpuQuota(root).value_or(processors));
}
