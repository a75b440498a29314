// What holds the memory of kernels and runs them: cpu, cuda-emu, cuda.
//
//   Backend     of a device: memory, copies, code
//   LoadedCode  of a module on it: the plan that fits, its kernels
//   Stream      of a session: launches, one after the other
#ifndef PREFILL_RUNTIME_CORE_BACKEND_H
#define PREFILL_RUNTIME_CORE_BACKEND_H

#include "core/Memory.h"
#include "core/ModuleFile.h"
#include "prefill/checkpoint/Result.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace prefill::rt {

/// Memory that a kernel may touch: what one of its arguments points to.
struct MemoryRange {
  DeviceAddress address;
  uint64_t bytes;
  std::string name;
  bool writable;
};

struct KernelLaunch {
  uint32_t launch; ///< index into the launches of the call's schedule
  uint32_t kernel; ///< index into the plan's kernels
  const std::vector<uint64_t> &words;
  int64_t workgroups;
  /// Workgroups side by side that read the same weights; a wish.
  int64_t grain;
  /// Of every argument; empty unless Backend::wantsRanges().
  const std::vector<MemoryRange> &ranges;
};

/// What the launches of one call have in common. Two calls of the same shape
/// on the same memory differ in the contents of buffers alone, and in
/// num_seqs, max_kv and block_table_stride among the words.
struct CallShape {
  uint32_t schedule; ///< index into the plan's schedules
  int64_t rowsPad, logitRowsPad, numSequences;
};

/// Launches of one session. Used by one thread at a time.
class Stream {
public:
  struct LaunchTime {
    uint64_t startNs, durationNs; ///< start: from beginCall
  };

  virtual ~Stream() = default;

  /// Takes whatever memory the kernels need beyond their arguments; all
  /// launches of the call follow, in the order of the schedule (or single ones:
  /// Session::runStaged). Inputs were uploaded before.
  virtual Result<void> beginCall(const CallShape &shape) = 0;
  virtual Result<void> launch(const KernelLaunch &launch) = 0;
  /// All launches of the call are done when it returns.
  virtual Result<void> endCall() { return synchronize(); }
  /// All launches so far are done when it returns.
  virtual Result<void> synchronize() = 0;

  /// Of the launches of the last call, in order; nullopt where launch() returns
  /// when the kernel is done, so that the caller's clock tells. Empty where
  /// single launches were not timed: see setTiming().
  virtual std::optional<std::vector<LaunchTime>> launchTimes() {
    return std::nullopt;
  }
  /// Times every launch of the calls from now on, even where that costs speed
  /// (cuda replays calls as graphs otherwise).
  virtual void setTiming(bool) {}

  /// Poison mode (Session::setPoison): what the stream gives to kernels beyond
  /// their arguments is NaN between canaries.
  virtual void setPoison(bool) {}
  /// Where the last launch wrote outside of that: "behind the scratch of
  /// thread 1", or empty.
  virtual std::string damage(const module::Kernel &) const { return ""; }

  /// What the launches of the last call asked of the device: a JSON array, one
  /// object a launch (docs/emulator.md). Empty where nothing is counted.
  virtual std::string counters() const { return ""; }
};

/// The plan of a module for a device, and its code, ready to run.
class LoadedCode {
public:
  explicit LoadedCode(const module::Plan &plan) : chosen(plan) {}
  virtual ~LoadedCode() = default;

  const module::Plan &plan() const { return chosen; }
  /// The code object that was taken: an ISA variant or a chip.
  virtual std::string variant() const = 0;
  /// `allocator` counts what the stream takes; it and the code outlive it.
  virtual Result<std::unique_ptr<Stream>>
  createStream(Allocator &allocator) = 0;

private:
  const module::Plan &chosen;
};

class Backend {
public:
  virtual ~Backend() = default;

  /// Where everything lies that kernels read and write. Lives as long as the
  /// backend.
  virtual DeviceMemory &memory() = 0;

  /// The plan for this device and its code; an Error that lists what the
  /// module has where there is none. `file` is verified and outlives the
  /// result.
  virtual Result<std::unique_ptr<LoadedCode>>
  load(const module::Module &file) = 0;

  /// KernelLaunch::ranges is to be filled.
  virtual bool wantsRanges() const { return false; }
  /// Head sizes of the KV cache are padded to a multiple of this.
  virtual int64_t featureUnit() const { return 1; }
  /// Memory is reserved but holds no values, and kernels compute none: the
  /// emulator's count-only mode.
  virtual bool countsOnly() const { return false; }

  /// The emulator's order of threads and its count-only mode; other backends
  /// refuse.
  virtual Result<void> configureEmulation(uint64_t /*seed*/,
                                          bool /*countOnly*/) {
    return Error{ErrorCode::unsupported,
                 "the device emulates nothing, expected cuda-emu:sm_XX"};
  }
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_BACKEND_H
