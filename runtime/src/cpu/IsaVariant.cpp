#include "cpu/IsaVariant.h"
#include "cpu/MultiplyRates.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

using namespace prefill::rt;

namespace {

// CPUID is asked directly where the compilers' names came late: libgcc 12 knows
// those of AMX but finds nothing.

bool cpuHasAvxVnni() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr unsigned avxVnni = 1u << 4;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & avxVnni);
#else
  return false;
#endif
}

bool cpuHasTiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr unsigned amxBf16 = 1u << 22, amxTile = 1u << 24;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & amxBf16) &&
         (edx & amxTile);
#else
  return false;
#endif
}

/// The tiles' 8 KiB are saved only for processes that have asked for them;
/// without permission the first instruction on tiles ends the process. Refused
/// by kernels before 5.16, by seccomp, and where a thread's alternate signal
/// stack is too small for what would have to be saved on it.
bool obtainTiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr int archReqXcompPerm = 0x1023, xfeatureXtiledata = 18;
  return ::syscall(SYS_arch_prctl, archReqXcompPerm, xfeatureXtiledata) == 0;
#else
  return false;
#endif
}

} // namespace

const char *prefill::rt::stringify(IsaVariant variant) {
  switch (variant) {
  case IsaVariant::avx2:
    return "avx2";
  case IsaVariant::avx_vnni:
    return "avx_vnni";
  case IsaVariant::avx512:
    return "avx512";
  case IsaVariant::avx512_vnni:
    return "avx512_vnni";
  case IsaVariant::avx512_bf16:
    return "avx512_bf16";
  case IsaVariant::amx_bf16:
    return "amx_bf16";
  }
  return "?";
}

std::optional<IsaVariant> prefill::rt::parseIsaVariant(std::string_view name) {
  for (IsaVariant variant : isaVariants)
    if (name == stringify(variant))
      return variant;
  return std::nullopt;
}

bool prefill::rt::hostSupports(IsaVariant variant) {
#if defined(__x86_64__)
  // The compiler's runtime reads XCR0 as well: a CPU whose system does not save
  // the wide registers does not support them.
  __builtin_cpu_init();
  switch (variant) {
  case IsaVariant::avx2:
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  case IsaVariant::avx_vnni:
    return hostSupports(IsaVariant::avx2) && cpuHasAvxVnni();
  case IsaVariant::avx512:
    return hostSupports(IsaVariant::avx2) &&
           __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
  case IsaVariant::avx512_vnni:
    return hostSupports(IsaVariant::avx512) &&
           __builtin_cpu_supports("avx512vnni");
  case IsaVariant::avx512_bf16:
    return hostSupports(IsaVariant::avx512_vnni) &&
           __builtin_cpu_supports("avx512bf16");
  case IsaVariant::amx_bf16: {
    static const bool tiles =
        hostSupports(IsaVariant::avx512_bf16) && cpuHasTiles() && obtainTiles();
    return tiles;
  }
  }
#endif
  return false;
}

std::optional<IsaVariant>
prefill::rt::chooseVariant(const std::function<bool(IsaVariant)> &isOffered) {
  // The host is asked for what is offered alone: of tiles that has effects.
  std::optional<IsaVariant> best;
  for (IsaVariant variant : isaVariants)
    if (isOffered(variant) && hostSupports(variant))
      best = variant;
  // What supports avx512_bf16 supports those before it.
  if (best == IsaVariant::avx512_bf16)
    for (IsaVariant other : {IsaVariant::avx512_vnni, IsaVariant::avx512})
      if (isOffered(other) && hostPrefersFma())
        return other;
  return best;
}

std::string prefill::rt::hostVariants() {
  std::string supported, all;
  auto append = [](std::string &list, IsaVariant variant) {
    list += (list.empty() ? "" : ", ") + std::string(stringify(variant));
  };
  for (IsaVariant variant : isaVariants) {
    append(all, variant);
    if (hostSupports(variant))
      append(supported, variant);
  }
  return supported.empty() ? "none of " + all : supported;
}
