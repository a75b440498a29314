// CUDA kernels executed without a GPU: every thread with a control flow of its
// own, with checks of memory and synchronisation, and with counters
// (docs/emulator.md).
//
//   Result<Program> program = Program::load(image, size, "module");
//   Emulator emulator(numThreads);
//   emulator.memory().add(weights, bytes, "weights", /*writable=*/false);
//   Result<LaunchOutcome> outcome =
//       emulator.launch(*program, "gemm", words, workgroups);
#ifndef PREFILL_RUNTIME_EMULATION_EMULATOR_H
#define PREFILL_RUNTIME_EMULATION_EMULATOR_H

#include "emulation/Counters.h"
#include "emulation/Fiber.h"
#include "emulation/GlobalMemory.h"
#include "emulation/Program.h"
#include "emulation/Report.h"

#include <memory>
#include <optional>
#include <vector>

namespace prefill::rt {
class ThreadPool;
}

namespace prefill::rt::emulation {

struct LaunchOptions {
  /// Order of warps and lanes: BlockRunner.h.
  uint64_t seed = 0;
  /// Counts without moving data and without matrix arithmetic; refused where a
  /// matrix result steers control flow. Outputs are left as they are.
  bool countOnly = false;
  /// Distinct sectors: memory of 1/256 of the registered bytes for each site
  /// that touches them.
  bool countSectors = true;
  /// Global bytes that one block writes and another one touches. Blocks then
  /// run one after another.
  bool checkBlockRaces = false;
};

struct LaunchOutcome {
  /// The finding of the lowest block that has one: the same for every number of
  /// host threads. The counters are empty then.
  std::optional<Report> report;
  LaunchCounters counters;
};

class BlockRunner;

class Emulator {
public:
  /// 0: ThreadPool::defaultSize(). Throws std::system_error as ThreadPool does.
  explicit Emulator(int numThreads = 0);
  /// Blocks run on threads that others use too; they outlive the emulator.
  explicit Emulator(ThreadPool &threads);
  ~Emulator();

  /// What kernels may touch; all else is out of bounds.
  GlobalMemory &memory() { return globalMemory; }

  /// Runs `workgroups` blocks of a kernel and returns when they are done.
  /// `words`: the launch's 64-bit words. An Error is a wrong call; what the
  /// kernel does wrong is in the outcome.
  Result<LaunchOutcome> launch(const Program &program,
                               const std::string &kernel,
                               const std::vector<uint64_t> &words,
                               int64_t workgroups,
                               const LaunchOptions &options = {});

private:
  /// Half of the mappings that Linux allows a process by default.
  static constexpr int maxStacks = 16384;

  /// Makes room for as many blocks at a time as there are blocks, processors,
  /// and stacks for; at least one. Returns how many.
  Result<int> prepareRunners(const Kernel &kernel, int64_t workgroups);

  GlobalMemory globalMemory;
  std::unique_ptr<ThreadPool> ownPool;
  ThreadPool *pool;
  /// Of the blocks that run at a time, at most `maxStacks` threads together.
  FiberStacks stacks;
  std::vector<std::unique_ptr<BlockRunner>> runners;
};

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_EMULATOR_H
