//===- Passes.h - graph passes of the prefill dialect -----------*- C++ -*-===//
#ifndef PREFILL_DIALECT_PREFILL_TRANSFORMS_PASSES_H
#define PREFILL_DIALECT_PREFILL_TRANSFORMS_PASSES_H

#include "mlir/Pass/Pass.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {
#define GEN_PASS_DECL
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

#endif // PREFILL_DIALECT_PREFILL_TRANSFORMS_PASSES_H
