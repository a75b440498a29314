#include "cpu/IsaVariant.h"

using namespace prefill::rt;

const char *prefill::rt::stringify(IsaVariant variant) {
  switch (variant) {
  case IsaVariant::avx2:
    return "avx2";
  case IsaVariant::avx512:
    return "avx512";
  case IsaVariant::avx512_bf16:
    return "avx512_bf16";
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
  case IsaVariant::avx512:
    return hostSupports(IsaVariant::avx2) &&
           __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
  case IsaVariant::avx512_bf16:
    return hostSupports(IsaVariant::avx512) &&
           __builtin_cpu_supports("avx512bf16");
  }
#endif
  return false;
}

std::string prefill::rt::hostVariants() {
  std::string list;
  for (IsaVariant variant : isaVariants)
    if (hostSupports(variant))
      list += (list.empty() ? "" : ", ") + std::string(stringify(variant));
  return list.empty() ? "none of avx2, avx512, avx512_bf16" : list;
}
