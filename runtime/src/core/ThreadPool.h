// Threads that share the workgroups of one launch.
#ifndef PREFILL_RUNTIME_CORE_THREADPOOL_H
#define PREFILL_RUNTIME_CORE_THREADPOOL_H

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace prefill::rt {

/// `size` threads, the caller's included. Between launches the others sleep in
/// the kernel: an idle pool uses no CPU time.
class ThreadPool {
public:
  /// `thread` is in [0, size) and is held by one thread at a time, so it may
  /// index scratch memory. [begin, end) is a part of the range.
  using Body = std::function<void(int thread, int64_t begin, int64_t end)>;

  /// Throws std::system_error when the system gives no more threads.
  explicit ThreadPool(int size);
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;
  ~ThreadPool();

  int size() const { return numThreads; }

  /// Runs body over [0, count) and returns when all of it is done. Chunks are
  /// handed out on demand, about eight for each thread, so that a thread that
  /// the system holds up does not hold up the launch. `body` must not throw.
  /// Callers on different threads take turns.
  void run(int64_t count, const Body &body);

  /// The number of processors that this process may use.
  static int availableProcessors();

private:
  void workerLoop(int thread);
  void takeChunks(int thread);
  void stop();

  const int numThreads;
  std::vector<std::thread> workers;
  std::mutex turn;

  // The launch at hand: written by run() before `generation` advances.
  const Body *body = nullptr;
  int64_t count = 0, chunk = 1;
  std::atomic<int64_t> next{0};
  std::atomic<int> busyWorkers{0};
  std::atomic<uint32_t> generation{0};
  std::atomic<bool> stopping{false};
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_THREADPOOL_H
