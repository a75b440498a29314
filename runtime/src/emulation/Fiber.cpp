#include "emulation/Fiber.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <sys/mman.h>

using namespace prefill::rt;
using namespace prefill::rt::emulation;

#if !defined(__x86_64__)
#error "the emulator's fibers are written for x86-64"
#endif

// System V ABI: rbx, rbp and r12 to r15 belong to the caller. The control words
// of x87 and SSE are the same for all fibers.
asm(R"(
.text
.globl prefill_emulation_switch
.hidden prefill_emulation_switch
.type prefill_emulation_switch, @function
prefill_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
.size prefill_emulation_switch, .-prefill_emulation_switch
)");

FiberStacks::~FiberStacks() {
  if (base)
    ::munmap(base, (bytes + guard) * reserved);
}

Result<void> FiberStacks::reserve(int count) {
  if (count <= reserved)
    return {};
  size_t total = (bytes + guard) * static_cast<size_t>(count);
  auto refused = [&](const std::string &call) {
    return Error{ErrorCode::outOfMemory,
                 call + " of " + std::to_string(total) + " bytes for " +
                     std::to_string(count) +
                     " stacks: " + std::strerror(errno)};
  };
  void *memory = ::mmap(nullptr, total, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return refused("mmap");
  auto *start = static_cast<char *>(memory);
  for (int i = 0; i < count; ++i)
    if (::mprotect(start + (bytes + guard) * i, guard, PROT_NONE) != 0) {
      Error error = refused("mprotect (see vm.max_map_count)");
      ::munmap(memory, total);
      return error;
    }
  if (base)
    ::munmap(base, (bytes + guard) * reserved);
  base = start;
  reserved = count;
  return {};
}

void *FiberStacks::prepare(int index, void (*entry)()) const {
  // Tops at different distances from a page's end, so that the stacks do not
  // all fall into the same cache sets.
  size_t stagger = static_cast<size_t>(index % 16) * 256;
  char *top = base + (bytes + guard) * (index + 1) - 64 - stagger;
  auto *stack = reinterpret_cast<void **>(top);
  *--stack = nullptr; // where a return address would be: entry is aligned
  *--stack = reinterpret_cast<void *>(entry);
  for (int registers = 0; registers < 6; ++registers)
    *--stack = nullptr;
  return stack;
}
