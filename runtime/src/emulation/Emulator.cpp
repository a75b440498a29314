#include "emulation/Emulator.h"
#include "core/ThreadPool.h"
#include "emulation/BlockRunner.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>

using namespace prefill::rt;
using namespace prefill::rt::emulation;

Emulator::Emulator(int numThreads)
    : ownPool(std::make_unique<ThreadPool>(
          numThreads > 0 ? numThreads : ThreadPool::defaultSize())),
      pool(ownPool.get()) {}

Emulator::Emulator(ThreadPool &threads) : pool(&threads) {}

Emulator::~Emulator() = default;

Result<int> Emulator::prepareRunners(const Kernel &kernel, int64_t workgroups) {
  int64_t most = std::min<int64_t>({workgroups, pool->size(),
                                    ThreadPool::availableProcessors(),
                                    maxStacks / kernel.threads});
  int count = static_cast<int>(std::max<int64_t>(1, most));
  Result<void> reserved = stacks.reserve(count * kernel.threads);
  while (!reserved && count > 1) { // slower is better than not at all
    count /= 2;
    reserved = stacks.reserve(count * kernel.threads);
  }
  if (!reserved)
    return reserved.takeError();
  while (runners.size() < static_cast<size_t>(count))
    runners.push_back(std::make_unique<BlockRunner>());
  return count;
}

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
  Result<int> prepared =
      prepareRunners(*kernel, options.checkBlockRaces ? 1 : workgroups);
  if (!prepared)
    return Error{ErrorCode::outOfMemory,
                 "emulated kernel '" + name + "', " +
                     std::to_string(kernel->threads) +
                     " threads a block: " + prepared.error().message};
  int active = *prepared;
  for (int i = 0; i < active; ++i)
    runners[i]->beginLaunch(state, stacks, i * kernel->threads);

  // Runners take blocks in ascending order; those behind the first finding need
  // not run.
  std::atomic<int64_t> next{0}, firstBad{INT64_MAX};
  std::mutex mutex;
  LaunchOutcome outcome;
  auto runBlocks = [&](BlockRunner &runner) {
    for (int64_t block = next++;
         block < std::min<int64_t>(workgroups, firstBad); block = next++) {
      std::optional<Report> report = runner.run(block);
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
  pool->run(active, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      runBlocks(*runners[i]);
  });
  if (outcome.report)
    return outcome;

  std::vector<SiteCounters> sums(program.sites.size());
  uint64_t switches = 0;
  for (int i = 0; i < active; ++i) {
    for (size_t site = 0; site < sums.size(); ++site)
      sums[site].add(runners[i]->counters[site]);
    switches += runners[i]->switches;
  }
  outcome.counters = summarize(program, sums, sectors.get());
  outcome.counters.switches = switches;
  return outcome;
}
