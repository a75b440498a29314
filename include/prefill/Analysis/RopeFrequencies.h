//===- RopeFrequencies.h - inverse frequencies of RoPE ----------*- C++ -*-===//
// docs/spec.md, "Rotary position embedding". The reference interpreter has its
// own implementation (lib/Reference/RopeAngles.cpp), so that one checks the
// other.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_ANALYSIS_ROPEFREQUENCIES_H
#define PREFILL_ANALYSIS_ROPEFREQUENCIES_H

#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "llvm/ADT/SmallVector.h"

namespace mlir::prefill {

/// The rotary_dim / 2 inverse frequencies, in radians a position, with the
/// scaling applied. Every step is rounded to f32 as transformers'
/// modeling_rope_utils.py does it on f32 tensors; the power alone is computed
/// in f64 and rounded once, because f32 `powf` differs between libraries. The
/// angle of position p is float(p) * result[i], rounded to f32.
SmallVector<float> computeInvFreq(RopeAttr rope);

} // namespace mlir::prefill

#endif // PREFILL_ANALYSIS_ROPEFREQUENCIES_H
