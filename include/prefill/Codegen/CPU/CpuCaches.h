//===- CpuCaches.h - the caches that tiles are made for ---------*- C++ -*-===//
#ifndef PREFILL_CODEGEN_CPU_CPUCACHES_H
#define PREFILL_CODEGEN_CPU_CPUCACHES_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstdint>

namespace mlir::prefill {

/// Sizes in bytes. The defaults are a generic server of the last years: Zen 4
/// and Skylake-SP have no less in the first two levels.
struct CpuCaches {
  int64_t l1 = 32 * 1024;        ///< data cache of a core
  int64_t l2 = 1024 * 1024;      ///< of a core
  int64_t l3 = 32 * 1024 * 1024; ///< that the threads of a run share
};

/// `host`, or three sizes "32K,1M,32M" (bytes, or with a suffix K, M or G),
/// none smaller than the one before, the first at least 8K. The error is one
/// line that names the value and what was expected.
llvm::Expected<CpuCaches> parseCpuCaches(llvm::StringRef text);

/// What CPUID says about this machine; an error where it says nothing.
llvm::Expected<CpuCaches> hostCpuCaches();

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_CPUCACHES_H
