// Runs the threads of one block at a time on one thread of the host.
#ifndef PREFILL_RUNTIME_EMULATION_BLOCKRUNNER_H
#define PREFILL_RUNTIME_EMULATION_BLOCKRUNNER_H

#include "emulation/BlockRaces.h"
#include "emulation/Clocks.h"
#include "emulation/Counters.h"
#include "emulation/Fiber.h"
#include "emulation/GlobalMemory.h"
#include "emulation/Program.h"
#include "emulation/Report.h"
#include "emulation/SharedMemory.h"

#include <optional>
#include <vector>

namespace prefill::rt::emulation {

/// What the blocks of a launch share. Read only, except what is thread-safe.
struct LaunchState {
  const Program *program = nullptr;
  const Kernel *kernel = nullptr;
  const uint64_t *words = nullptr;
  int64_t blocks = 0;
  const GlobalMemory *memory = nullptr;
  LaunchSectors *sectors = nullptr; ///< nullptr: not counted
  BlockRaces *races = nullptr;      ///< nullptr: not checked
  uint64_t seed = 0;
  bool countOnly = false;
};

/// The order in which threads run between two synchronisations is a function of
/// the seed and the block: 0 runs warps and lanes in ascending order, each as
/// far as it gets; odd seeds give every warp a fixed random priority, so that
/// some run ahead of others as far as synchronisation lets them; even seeds
/// choose among the warps that can run at random. Lanes begin at a random one,
/// upwards or downwards.
class BlockRunner {
public:
  BlockRunner() : shared(clocks) {}
  BlockRunner(const BlockRunner &) = delete;
  BlockRunner &operator=(const BlockRunner &) = delete;

  /// Prepares for the blocks of a launch, whose threads get the stacks from
  /// number `firstStack` on.
  void beginLaunch(const LaunchState &state, const FiberStacks &stacks,
                   int firstStack);
  /// The first finding ends the block.
  std::optional<Report> run(int64_t block);

  std::vector<SiteCounters> counters; ///< of the launch, by site
  uint64_t switches = 0;

  /// The table that the kernels call through.
  static const Api &api();

private:
  friend struct ApiCalls;

  enum class State : uint8_t { running, barrier, collective, exited };
  struct Copy {
    uint64_t source = 0;
    int32_t offset = 0;
    uint32_t site = 0;
    uint8_t bytes = 0, sourceBytes = 0;
  };
  struct Thread {
    void *stack = nullptr;
    State state = State::running;
    uint32_t site = 0; ///< where it waits
    uint32_t result[4] = {};
    uint64_t shuffled = 0;
    std::vector<Copy> copies;        ///< in order of issue
    std::vector<uint32_t> groupEnds; ///< of committed groups, into copies
  };
  /// Lanes of a warp on their way into one collective.
  struct Rendezvous {
    uint32_t mask = 0, arrived = 0, site = 0; ///< mask 0: free
    uint32_t value[warpLanes], offset[warpLanes], clamp[warpLanes];
    uint64_t address[warpLanes];
    const uint32_t *operands[warpLanes];
    uint32_t *results[warpLanes];
  };
  struct Warp {
    uint32_t live = 0, runnable = 0, exited = 0;
    std::vector<Rendezvous> open;
    /// A hash of the collectives that a lane passed since all lanes met.
    uint64_t passed[warpLanes] = {};
    uint32_t lastPassed[warpLanes] = {}; ///< the site
  };
  struct Barrier {
    uint32_t threads = 0, arrived = 0; ///< threads 0: all of the block
    std::vector<uint32_t> lanes;       ///< waiting lanes of each warp
    std::vector<uint32_t> site;        ///< of each warp
  };

  static constexpr int numBarriers = 16;

  // Scheduling (BlockRunner.cpp).
  void startThreads();
  void switchToNext();
  int nextThread();
  void wait(State state, uint32_t site);
  void exitThread();
  static void threadEntry();
  [[noreturn]] void abandon();
  [[noreturn]] void fail(Finding finding, uint32_t site, int otherThread,
                         int otherSite, std::string detail);
  [[noreturn]] void failShared(const Hazard &hazard, uint32_t site,
                               const char *verb, int bytes);
  void reportDeadlock();
  std::string describeWaiting() const;
  int warpOf(int thread) const { return thread / warpLanes; }
  int lane() const { return current % warpLanes; }
  const Site &siteAt(uint32_t site) const {
    return launch.program->sites[site];
  }

  // Memory (BlockMemory.cpp).
  void *access(uint32_t site, uint64_t address);
  void *accessShared(uint32_t site, uint64_t address);
  void *accessGlobal(uint32_t site, uint64_t address);
  void checkGlobal(uint32_t site, uint64_t address, int bytes, bool store);
  int64_t sharedOffset(uint32_t site, uint64_t address, int bytes,
                       int alignment);
  void asyncCopy(uint32_t site, uint64_t destination, uint64_t source,
                 uint32_t sourceBytes);
  void commitGroup();
  void waitGroup(uint32_t site);

  // Synchronisation (BlockSync.cpp).
  void barrier(uint32_t site, uint32_t id, uint32_t threads);
  void releaseBarrier(Barrier &barrier);
  void checkExitAtBarriers();
  /// The meeting that `mask` names at `site`, with this lane entered.
  Rendezvous &enter(uint32_t site, uint32_t mask);
  /// Waits until all lanes have arrived; the last one computes.
  void meet(Rendezvous &meeting);
  void complete(Rendezvous &meeting);
  /// Where no data moves, a lane need not wait for the others of a matrix
  /// instruction: that all pass the same ones is checked where they next meet.
  void pass(uint32_t site);
  void checkPassed(int warp, int meetingSite);
  /// The row of `ldmatrix` that the lane names.
  void passLoadMatrix(uint32_t site, uint64_t address, uint32_t *result);
  const uint8_t *readRow(uint32_t site, uint64_t address);
  void completeShuffle(Rendezvous &meeting);
  void completeLoadMatrix(Rendezvous &meeting);

  LaunchState launch;
  Clocks clocks;
  SharedMemory shared;
  RequestLog log;
  const FiberStacks *stacks = nullptr;
  int firstStack = 0;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Barrier> barriers;
  std::vector<int> order; ///< warps by priority
  const Allocation *lastAllocation = nullptr;
  int64_t block = 0;
  int current = 0, exitedThreads = 0, firstExited = -1;
  int numThreads = 0, numWarps = 0;
  int laneRotation = 0;
  bool lanesDescend = false, chooseAtRandom = false;
  uint64_t random = 0;
  bool firstLaunch = true;
  void *hostStack = nullptr;
  std::optional<Report> report;
  alignas(128) uint8_t zeros[128] = {}, sink[128] = {};
};

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_BLOCKRUNNER_H
