// What is known about the machine without measuring.
#ifndef PREFILL_TOOLS_PREFILLBENCH_MACHINE_H
#define PREFILL_TOOLS_PREFILLBENCH_MACHINE_H

#include "cpu/IsaVariant.h"

#include <cstddef>
#include <string>

namespace prefill::bench {

/// Bytes, of the caches that one core sees; 0 where the system does not say.
struct CacheSizes {
  size_t l1d, l2, l3;
};
CacheSizes cacheSizes();

/// "AMD EPYC 9654", from /proc/cpuinfo; "unknown" when it does not say.
std::string cpuName();

/// A name as a part of a file's name: letters, digits and single dashes, in
/// lower case.
std::string slugOf(const std::string &name);

/// The CPU's, with family, model and stepping, because hypervisors shorten
/// names.
std::string cpuSlug();

/// The variant that runs where nobody asks for another, of modules of bf16: all
/// but those that are for int8 weights alone. Every x86 host that this tool
/// starts on is expected to have AVX2.
rt::IsaVariant bestVariant();
/// The one with the most instructions, whether it is the fastest or not.
rt::IsaVariant mostCapableVariant();

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_MACHINE_H
