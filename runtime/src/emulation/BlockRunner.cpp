#include "emulation/BlockRunner.h"
#include "emulation/Approximations.h"

#include <algorithm>
#include <numeric>

using namespace prefill::rt::emulation;

namespace {

thread_local BlockRunner *runner = nullptr;

/// SplitMix64 (Steele, Lea and Flood 2014).
uint64_t nextRandom(uint64_t &state) {
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

} // namespace

void BlockRunner::beginLaunch(const LaunchState &state,
                              const FiberStacks &fiberStacks, int first) {
  launch = state;
  stacks = &fiberStacks;
  firstStack = first;
  numThreads = launch.kernel->threads;
  numWarps = (numThreads + warpLanes - 1) / warpLanes;
  counters.assign(launch.program->sites.size(), {});
  log.begin(*launch.program, *launch.kernel, *launch.memory, launch.sectors,
            &counters, numWarps);
  threads.resize(numThreads);
  warps.assign(numWarps, {});
  barriers.assign(numBarriers, {});
  order.resize(numWarps);
  switches = 0;
  lastAllocation = nullptr;
}

void BlockRunner::startThreads() {
  report.reset();
  exitedThreads = 0;
  firstExited = -1;
  bool roomLeft = clocks.beginBlock(numWarps);
  shared.beginBlock(launch.kernel->sharedBytes, numWarps,
                    !roomLeft || firstLaunch);
  firstLaunch = false;
  for (Barrier &barrier : barriers) {
    barrier.threads = barrier.arrived = 0;
    barrier.lanes.assign(numWarps, 0);
    barrier.site.assign(numWarps, 0);
  }
  for (int i = 0; i < numWarps; ++i) {
    int lanes = std::min(warpLanes, numThreads - i * warpLanes);
    warps[i].live = warps[i].runnable =
        lanes == warpLanes ? ~0u : (1u << lanes) - 1;
    warps[i].exited = 0;
    warps[i].open.clear();
    std::fill_n(warps[i].passed, warpLanes, 0);
  }
  for (int i = 0; i < numThreads; ++i) {
    threads[i].stack = stacks->prepare(firstStack + i, threadEntry);
    threads[i].state = State::running;
    threads[i].copies.clear();
    threads[i].groupEnds.clear();
  }
  std::iota(order.begin(), order.end(), 0);
  random = launch.seed * 0x2545f4914f6cdd1d + static_cast<uint64_t>(block);
  laneRotation = 0;
  lanesDescend = chooseAtRandom = false;
  if (launch.seed != 0) {
    for (int i = numWarps - 1; i > 0; --i)
      std::swap(order[i],
                order[nextRandom(random) % static_cast<uint64_t>(i + 1)]);
    laneRotation = static_cast<int>(nextRandom(random) % warpLanes);
    lanesDescend = nextRandom(random) & 1;
    chooseAtRandom = launch.seed % 2 == 0;
  }
}

std::optional<Report> BlockRunner::run(int64_t index) {
  block = index;
  startThreads();
  BlockRunner *outer = runner;
  runner = this;
  current = -1;
  current = nextThread();
  prefill_emulation_switch(&hostStack, threads[current].stack);
  runner = outer;
  if (!report)
    for (int warp = 0; warp < numWarps; ++warp)
      log.flush(warp);
  return report;
}

/// The lanes of the current warp first, then other warps by priority or at
/// random. -1: nobody can run.
int BlockRunner::nextThread() {
  int warp = current < 0 ? -1 : warpOf(current);
  if (warp < 0 || !warps[warp].runnable) {
    warp = -1;
    if (chooseAtRandom) {
      auto start = static_cast<int>(nextRandom(random) %
                                    static_cast<uint64_t>(numWarps));
      for (int i = 0; i < numWarps && warp < 0; ++i)
        if (int at = order[(start + i) % numWarps]; warps[at].runnable)
          warp = at;
    } else {
      for (int i = 0; i < numWarps && warp < 0; ++i)
        if (warps[order[i]].runnable)
          warp = order[i];
    }
    if (warp < 0)
      return -1;
  }
  uint32_t runnable = warps[warp].runnable;
  uint32_t rotated = laneRotation ? runnable >> laneRotation |
                                        runnable << (warpLanes - laneRotation)
                                  : runnable;
  int lane =
      lanesDescend ? 31 - __builtin_clz(rotated) : __builtin_ctz(rotated);
  return warp * warpLanes + (lane + laneRotation) % warpLanes;
}

void BlockRunner::switchToNext() {
  int from = current;
  int to = nextThread();
  ++switches;
  if (to < 0) {
    if (exitedThreads < numThreads)
      reportDeadlock();
    prefill_emulation_switch(&threads[from].stack, hostStack);
  }
  current = to;
  if (to != from)
    prefill_emulation_switch(&threads[from].stack, threads[to].stack);
}

void BlockRunner::wait(State state, uint32_t site) {
  threads[current].state = state;
  threads[current].site = site;
  warps[warpOf(current)].runnable &= ~(1u << lane());
  switchToNext();
}

void BlockRunner::exitThread() {
  Thread &thread = threads[current];
  if (!thread.copies.empty())
    fail(Finding::openCopies, thread.copies.front().site, -1, -1,
         std::to_string(thread.copies.size()) +
             " cp.async of the thread were never waited for");
  thread.state = State::exited;
  if (exitedThreads++ == 0)
    firstExited = current;
  Warp &warp = warps[warpOf(current)];
  warp.runnable &= ~(1u << lane());
  warp.live &= ~(1u << lane());
  warp.exited |= 1u << lane();
  if (warp.live == 0)
    checkPassed(warpOf(current), -1);
  checkExitAtBarriers();
  switchToNext();
}

void BlockRunner::threadEntry() {
  runner->launch.kernel->entry(runner->launch.words);
  runner->exitThread();
  __builtin_unreachable();
}

/// Leaves the block: its threads never continue. Kernels have no destructors;
/// pieces of a report's text are lost with the stack.
void BlockRunner::abandon() {
  void *ignored = nullptr;
  prefill_emulation_switch(&ignored, hostStack);
  __builtin_unreachable();
}

void BlockRunner::fail(Finding finding, uint32_t site, int otherThread,
                       int otherSite, std::string detail) {
  {
    std::string text = std::move(detail);
    report = Report{finding,
                    launch.kernel->name,
                    block,
                    current,
                    otherThread,
                    siteAt(site).name,
                    otherSite < 0 ? "" : siteAt(otherSite).name,
                    std::move(text)};
  }
  abandon();
}

void BlockRunner::failShared(const Hazard &hazard, uint32_t site,
                             const char *verb, int bytes) {
  std::string text = std::string(verb) + " of " + std::to_string(bytes) +
                     " bytes, byte " + std::to_string(hazard.offset) +
                     " of shared memory";
  if (hazard.otherThread >= 0) {
    text += hazard.finding == Finding::race
                ? std::string(" is not ordered after the ") +
                      (hazard.otherWrote ? "write" : "read")
                : std::string(": the copy");
    text += " by thread " + std::to_string(hazard.otherThread) + " at " +
            siteAt(hazard.otherSite).name;
    if (hazard.finding != Finding::race)
      text += " is under way";
  } else {
    text += " was not written in this block";
  }
  fail(hazard.finding, site, hazard.otherThread, hazard.otherSite,
       std::move(text));
}

/// "threads 0-31 wait in nvvm.barrier at gemm.sync; thread 32 has exited"
std::string BlockRunner::describeWaiting() const {
  std::string text;
  for (int first = 0; first < numThreads;) {
    const Thread &thread = threads[first];
    int end = first + 1;
    while (end < numThreads && threads[end].state == thread.state &&
           (thread.state == State::exited || threads[end].site == thread.site))
      ++end;
    text += text.empty() ? "" : "; ";
    bool one = end - first == 1;
    text += one ? "thread " + std::to_string(first)
                : "threads " + std::to_string(first) + "-" +
                      std::to_string(end - 1);
    if (thread.state == State::exited) {
      text += one ? " has exited" : " have exited";
    } else {
      const Site &site = siteAt(thread.site);
      text += (one ? " waits in " : " wait in ") + site.op + " at " + site.name;
    }
    first = end;
  }
  return text;
}

void BlockRunner::reportDeadlock() {
  int waiting = 0;
  while (threads[waiting].state == State::exited)
    ++waiting;
  report = Report{Finding::deadlock,
                  launch.kernel->name,
                  block,
                  waiting,
                  -1,
                  siteAt(threads[waiting].site).name,
                  "",
                  describeWaiting()};
}

namespace prefill::rt::emulation {

/// The functions of the table, for the runner of the calling host thread.
struct ApiCalls {
  static uint32_t specialRegister(uint32_t which) {
    switch (static_cast<SpecialRegister>(which)) {
    case SpecialRegister::tid:
      return static_cast<uint32_t>(runner->current);
    case SpecialRegister::ntid:
      return static_cast<uint32_t>(runner->numThreads);
    case SpecialRegister::ctaid:
      return static_cast<uint32_t>(runner->block);
    case SpecialRegister::nctaid:
      return static_cast<uint32_t>(runner->launch.blocks);
    case SpecialRegister::laneid:
      return static_cast<uint32_t>(runner->lane());
    }
    return 0;
  }
  static void *access(uint32_t site, uint64_t address) {
    return runner->access(site, address);
  }
  static void barrier(uint32_t site, uint32_t id, uint32_t threads) {
    runner->barrier(site, id, threads);
  }
  static void syncWarp(uint32_t site, uint32_t mask) {
    runner->meet(runner->enter(site, mask));
  }
  static uint64_t shuffle(uint32_t site, uint32_t mask, uint32_t value,
                          uint32_t offset, uint32_t clamp) {
    BlockRunner::Rendezvous &meeting = runner->enter(site, mask);
    int lane = runner->lane();
    meeting.value[lane] = value;
    meeting.offset[lane] = offset;
    meeting.clamp[lane] = clamp;
    runner->meet(meeting);
    return runner->threads[runner->current].shuffled;
  }
  static uint32_t vote(uint32_t site, uint32_t mask, uint32_t predicate) {
    BlockRunner::Rendezvous &meeting = runner->enter(site, mask);
    meeting.value[runner->lane()] = predicate;
    runner->meet(meeting);
    return runner->threads[runner->current].result[0];
  }
  static uint32_t redux(uint32_t site, uint32_t mask, uint32_t value) {
    return vote(site, mask, value); // the site says which
  }
  static void loadMatrix(uint32_t site, uint64_t address, uint32_t *result) {
    if (runner->launch.countOnly)
      return runner->passLoadMatrix(site, address, result);
    BlockRunner::Rendezvous &meeting = runner->enter(site, ~0u);
    meeting.address[runner->lane()] = address;
    meeting.results[runner->lane()] = result;
    runner->meet(meeting);
  }
  static void mma(uint32_t site, const uint32_t *operands, uint32_t *result) {
    if (runner->launch.countOnly) {
      runner->pass(site);
      if (runner->lane() == 0) {
        runner->counters[site].requests += 1;
        runner->counters[site].threads += warpLanes;
      }
      std::copy_n(operands + 6, 4, result); // the sums
      return;
    }
    BlockRunner::Rendezvous &meeting = runner->enter(site, ~0u);
    meeting.operands[runner->lane()] = operands;
    meeting.results[runner->lane()] = result;
    runner->meet(meeting);
  }
  static void asyncCopy(uint32_t site, uint64_t destination, uint64_t source,
                        uint32_t sourceBytes) {
    runner->asyncCopy(site, destination, source, sourceBytes);
  }
  static void commitGroup(uint32_t) { runner->commitGroup(); }
  static void waitGroup(uint32_t site) { runner->waitGroup(site); }
  static void gridDependency(uint32_t site) {
    ++runner->counters[site].requests;
  }
};

} // namespace prefill::rt::emulation

const Api &BlockRunner::api() {
  static constexpr Api table = {ApiCalls::specialRegister,
                                ApiCalls::access,
                                ApiCalls::barrier,
                                ApiCalls::syncWarp,
                                ApiCalls::shuffle,
                                ApiCalls::vote,
                                ApiCalls::redux,
                                ApiCalls::loadMatrix,
                                ApiCalls::mma,
                                ApiCalls::asyncCopy,
                                ApiCalls::commitGroup,
                                ApiCalls::waitGroup,
                                ApiCalls::gridDependency,
                                exp2Approx,
                                reciprocalApprox,
                                reciprocalSqrtApprox,
                                log2Approx};
  return table;
}
