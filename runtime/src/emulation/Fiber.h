// Stacks and the switch between them: each CUDA thread has a control flow of
// its own.
#ifndef PREFILL_RUNTIME_EMULATION_FIBER_H
#define PREFILL_RUNTIME_EMULATION_FIBER_H

#include "prefill/checkpoint/Result.h"

#include <cstddef>
#include <cstdint>

/// Saves the callee-saved registers on the stack, stores the stack pointer to
/// `*save` and continues where `resume` was saved.
extern "C" void prefill_emulation_switch(void **save, void *resume);

namespace prefill::rt::emulation {

/// `count` stacks side by side, an inaccessible page below each. Pages that are
/// never touched take no memory, but each stack takes two of the mappings that
/// the system allows a process (vm.max_map_count, 65530 by default).
class FiberStacks {
public:
  FiberStacks() = default;
  FiberStacks(const FiberStacks &) = delete;
  FiberStacks &operator=(const FiberStacks &) = delete;
  ~FiberStacks();

  /// Keeps larger sets. The Error names the call that the system refused.
  Result<void> reserve(int count);

  /// A stack pointer for prefill_emulation_switch that calls `entry` on an
  /// empty stack. `entry` must not return.
  void *prepare(int index, void (*entry)()) const;

  /// The emulator's code is not optimised: a frame holds every value of a
  /// kernel, 8 bytes and more for each.
  static constexpr size_t bytes = 256 << 10;

private:
  static constexpr size_t guard = 4096;
  char *base = nullptr;
  int reserved = 0;
};

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_FIBER_H
