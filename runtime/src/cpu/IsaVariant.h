// The instruction sets that a module may have code for.
#ifndef PREFILL_RUNTIME_CPU_ISAVARIANT_H
#define PREFILL_RUNTIME_CPU_ISAVARIANT_H

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace prefill::rt {

/// From the least to the most capable. Only modules with 8-bit integer weights
/// have code for the two with VNNI alone, products of 8-bit integers.
enum class IsaVariant {
  avx2,        ///< AVX2 and FMA
  avx_vnni,    ///< avx2 and AVX-VNNI
  avx512,      ///< avx2 and AVX-512 F, BW, VL, DQ
  avx512_vnni, ///< avx512 and AVX-512 VNNI
  avx512_bf16, ///< avx512_vnni and AVX-512 BF16
  amx_bf16     ///< avx512_bf16 and AMX: tiles and their products of bf16
};
inline constexpr IsaVariant isaVariants[] = {
    IsaVariant::avx2,        IsaVariant::avx_vnni,    IsaVariant::avx512,
    IsaVariant::avx512_vnni, IsaVariant::avx512_bf16, IsaVariant::amx_bf16};

const char *stringify(IsaVariant variant);
std::optional<IsaVariant> parseIsaVariant(std::string_view name);

/// Asks CPUID, and the system whether it saves the registers. For amx_bf16 that
/// is Linux's permission to use them, which the first question obtains for the
/// whole process: larger frames of signals from then on.
bool hostSupports(IsaVariant variant);

/// What to run of the variants that `isOffered` says yes to: the most capable
/// one that the host supports, but avx512_vnni or else avx512 in place of
/// avx512_bf16 where the host is faster at it (MultiplyRates.h). None where it
/// supports none of them.
std::optional<IsaVariant>
chooseVariant(const std::function<bool(IsaVariant)> &isOffered);

/// "avx2, avx512": what this CPU runs; "none of avx2, ..." if nothing.
std::string hostVariants();

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CPU_ISAVARIANT_H
