//===- HostIsa.h - the variants that this machine runs ----------*- C++ -*-===//
#ifndef PREFILL_TARGET_CPU_HOSTISA_H
#define PREFILL_TARGET_CPU_HOSTISA_H

#include "prefill/Codegen/CPU/IsaTable.h"

namespace mlir::prefill {

/// Whether this machine's CPU has the instructions of `isa`, and its system
/// saves their registers.
bool hostRuns(const CpuIsa &isa);

} // namespace mlir::prefill

#endif // PREFILL_TARGET_CPU_HOSTISA_H
