//===- HostIsa.cpp - the variants that this machine runs ------------------===//
#include "prefill/Target/CPU/HostIsa.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;
using namespace mlir::prefill;

bool prefill::hostRuns(const CpuIsa &isa) {
  static const llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  auto has = [](llvm::StringRef feature) { return host.lookup(feature); };
  // x86-64-v3 and what v4 adds, as far as vector code is made for them.
  bool level = has("avx2") && has("fma") && has("f16c") && has("bmi2");
  if (isa.cpu == "x86-64-v4")
    level = level && has("avx512f") && has("avx512bw") && has("avx512dq") &&
            has("avx512vl") && has("avx512cd");
  if (!level)
    return false;
  for (llvm::StringRef feature : llvm::split(isa.features, ','))
    if (!feature.empty() && !has(feature.drop_front()))
      return false;
  return true;
}
