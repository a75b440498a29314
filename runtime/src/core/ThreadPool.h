// Threads that share the workgroups of one launch.
//
// A pool of its own rather than oneTBB's: the runtime depends on nothing but
// the C++ library, a launch needs one counter and no task objects, each thread
// has a fixed number that indexes its scratch, and how long an idle thread may
// spin is ours to bound.
#ifndef PREFILL_RUNTIME_CORE_THREADPOOL_H
#define PREFILL_RUNTIME_CORE_THREADPOOL_H

#include "core/Topology.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace prefill::rt {

/// `size` threads, the caller's included. After a launch a thread looks out for
/// the next one for `spinBudget` and then sleeps in the kernel: a decode step
/// is some hundred launches a few microseconds apart, and waking a thread takes
/// longer than many of them. An idle pool uses no CPU time.
class ThreadPool {
public:
  /// How long a thread that waits may keep its processor. No thread spins in a
  /// pool of more than defaultSize() threads: others have work for its time.
  static constexpr std::chrono::microseconds spinBudget{50};

  /// `thread` is in [0, size) and is held by one thread at a time, so it may
  /// index scratch memory. [begin, end) is a part of the range.
  using Body = std::function<void(int thread, int64_t begin, int64_t end)>;

  /// Throws std::system_error when the system gives no more threads.
  explicit ThreadPool(int size) : ThreadPool(Placement(std::max(1, size))) {}
  /// With more nodes than one, threads are bound to theirs (but for thread 0,
  /// the caller's, which is not ours to bind), begin each launch in their
  /// node's share of it, and then help the others.
  explicit ThreadPool(Placement placement);
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;
  ~ThreadPool();

  int size() const { return numThreads; }
  const Placement &placement() const { return placed; }

  /// Runs body over [0, count) and returns when all of it is done. Chunks are
  /// handed out on demand; they shrink towards the end, so that all threads
  /// finish together, and begin at multiples of `grain` (indices that share
  /// data, as workgroups that read the same weights do) until there are too few
  /// of those. A thread that the system holds up before it took a chunk does
  /// not hold up the launch. `body` must not throw. Callers on different
  /// threads take turns.
  void run(int64_t count, const Body &body, int64_t grain = 1);

  /// The number of processors that this process may use, by its affinity; each
  /// of a core's SMT siblings is one.
  static int availableProcessors();
  /// Threads where nobody says how many: availableProcessors(), but no more
  /// than the quota of processor time (cpuQuota) keeps busy. With more, the
  /// system stops them all for the rest of each period, in the middle of a
  /// launch.
  static int defaultSize(const std::string &root = "");

private:
  void workerLoop(int thread);
  void takeChunks(int thread);
  /// A node's part of the launch, with its own counter.
  struct alignas(64) Share {
    int threads = 0;
    /// A thread reads it after it claimed a chunk.
    int64_t first = 0;
    /// This it reads before: a late thread may see that of the next launch, but
    /// then its claim fails.
    std::atomic<int64_t> units{0};
    /// Number of the launch in the upper half, position in the lower one. One
    /// word, so that no thread claims a part of a launch that it has not seen
    /// begin.
    std::atomic<uint64_t> next{0};
  };
  void takeChunks(Share &share, int thread);
  int64_t chunkSize(const Share &share, int64_t position, int64_t left) const;
  void stop();
  template <typename Condition> bool spinUntil(Condition condition) const;

  const Placement placed;
  const int numThreads;
  const bool maySpin;
  std::vector<std::thread> workers;
  std::mutex turn;

  // The launch at hand, in units of `unit` indices so that positions have 32
  // bits. A thread reads these after it claimed a chunk, and the launch lasts
  // until every claimed chunk is done.
  const Body *body = nullptr;
  int64_t count = 0, unit = 1;
  std::atomic<int64_t> grainUnits{1};
  const std::unique_ptr<Share[]> shares; ///< placed.numShares() of them
  std::atomic<uint32_t> unfinished{0};
  std::atomic<uint32_t> generation{0};
  std::atomic<bool> stopping{false};
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_THREADPOOL_H
