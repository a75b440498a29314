//===- Passes.h - passes from the prefill dialect to others -----*- C++ -*-===//
#ifndef PREFILL_CONVERSION_PASSES_H
#define PREFILL_CONVERSION_PASSES_H

#include "mlir/Pass/Pass.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {
#define GEN_PASS_DECL
#include "prefill/Conversion/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "prefill/Conversion/Passes.h.inc"
} // namespace mlir::prefill

#endif // PREFILL_CONVERSION_PASSES_H
