#include "emulation/Emulator.h"
#include "core/ThreadPool.h"
#include "emulation/BlockRunner.h"

#include <atomic>
#include <mutex>
#include <new>

using namespace prefill::rt;
using namespace prefill::rt::emulation;

Emulator::Emulator(int numThreads)
    : ownPool(std::make_unique<ThreadPool>(
          numThreads > 0 ? numThreads : ThreadPool::availableProcessors())),
      pool(ownPool.get()) {
  for (int i = 0; i < pool->size(); ++i)
    runners.push_back(std::make_unique<BlockRunner>());
}

Emulator::Emulator(ThreadPool &threads) : pool(&threads) {
  for (int i = 0; i < pool->size(); ++i)
    runners.push_back(std::make_unique<BlockRunner>());
}

Emulator::~Emulator() = default;

Result<LaunchOutcome> Emulator::launch(const Program &program,
                                       const std::string &name,
                                       const std::vector<uint64_t> &words,
                                       int64_t workgroups,
                                       const LaunchOptions &options) {
  auto bad = [&](const std::string &reason) {
    return Error{ErrorCode::invalidArgument,
                 "emulated kernel '" + name + "' " + reason};
  };
  const Kernel *kernel = program.kernel(name);
  if (!kernel)
    return bad("does not exist");
  if (words.size() != static_cast<size_t>(kernel->words))
    return bad("takes " + std::to_string(kernel->words) + " words (given " +
               std::to_string(words.size()) + ")");
  if (workgroups < 0 || workgroups > INT32_MAX)
    return bad("cannot run " + std::to_string(workgroups) +
               " workgroups (expected 0 to 2147483647)");
  if (options.countOnly && !kernel->needsArithmetic.empty())
    return bad("cannot be counted without arithmetic: its control flow depends "
               "on the result at " +
               kernel->needsArithmetic);

  std::unique_ptr<LaunchSectors> sectors;
  if (options.countSectors)
    sectors = std::make_unique<LaunchSectors>(program, *kernel, globalMemory);
  BlockRaces races;
  LaunchState state;
  state.program = &program;
  state.kernel = kernel;
  state.words = words.data();
  state.blocks = workgroups;
  state.memory = &globalMemory;
  state.sectors = sectors.get();
  state.races = options.checkBlockRaces ? &races : nullptr;
  state.seed = options.seed;
  state.countOnly = options.countOnly;
  for (auto &runner : runners)
    if (!runner->beginLaunch(state))
      return Error{ErrorCode::outOfMemory, "no memory for the stacks of " +
                                               std::to_string(kernel->threads) +
                                               " emulated threads"};

  // Blocks behind the first finding need not run.
  std::atomic<int64_t> firstBad{INT64_MAX};
  std::mutex mutex;
  LaunchOutcome outcome;
  auto body = [&](int thread, int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end && block < firstBad; ++block) {
      std::optional<Report> report = runners[thread]->run(block);
      if (!report)
        continue;
      std::lock_guard<std::mutex> lock(mutex);
      if (block < firstBad) {
        firstBad = block;
        outcome.report = std::move(report);
      }
      return;
    }
  };
  if (options.checkBlockRaces)
    body(0, 0, workgroups);
  else
    pool->run(workgroups, body);
  if (outcome.report)
    return outcome;

  std::vector<SiteCounters> sums(program.sites.size());
  uint64_t switches = 0;
  for (auto &runner : runners) {
    for (size_t site = 0; site < sums.size(); ++site)
      sums[site].add(runner->counters[site]);
    switches += runner->switches;
  }
  outcome.counters = summarize(program, sums, sectors.get());
  outcome.counters.switches = switches;
  return outcome;
}
