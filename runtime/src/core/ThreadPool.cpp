#include "core/ThreadPool.h"

#include <algorithm>
#include <sched.h>

using namespace prefill::rt;

ThreadPool::ThreadPool(int size) : numThreads(std::max(1, size)) {
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

void ThreadPool::run(int64_t count, const Body &body) {
  if (count <= 0)
    return;
  std::lock_guard<std::mutex> lock(turn);
  // One thread takes the range whole: a kernel may then reuse what it sets up
  // for a range. One workgroup is not worth waking anybody.
  if (numThreads == 1 || count == 1) {
    body(0, 0, count);
    return;
  }
  this->body = &body;
  this->count = count;
  chunk = std::max<int64_t>(1, count / (int64_t(numThreads) * 8));
  next = 0;
  busyWorkers = numThreads - 1;
  ++generation;
  generation.notify_all();
  takeChunks(0);
  // Every worker reports, even one that came too late for a chunk: only then
  // may the next launch overwrite the fields above.
  for (int busy = busyWorkers; busy != 0; busy = busyWorkers)
    busyWorkers.wait(busy);
}

void ThreadPool::takeChunks(int thread) {
  for (;;) {
    int64_t begin = next.fetch_add(chunk);
    if (begin >= count)
      return;
    (*body)(thread, begin, std::min(begin + chunk, count));
  }
}

void ThreadPool::workerLoop(int thread) {
  uint32_t seen = 0;
  for (;;) {
    generation.wait(seen);
    // A launch waits for every worker, so a worker never misses a generation.
    seen = generation;
    if (stopping)
      return;
    takeChunks(thread);
    if (busyWorkers.fetch_sub(1) == 1)
      busyWorkers.notify_one();
  }
}

int ThreadPool::availableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}
