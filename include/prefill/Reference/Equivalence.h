//===- Equivalence.h - two modules, one meaning? ----------------*- C++ -*-===//
// How passes are tested: run the module before and after, in f64 without
// rounding, and compare all that a caller can see.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_REFERENCE_EQUIVALENCE_H
#define PREFILL_REFERENCE_EQUIVALENCE_H

#include "prefill/Reference/Interpreter.h"

namespace mlir::prefill::reference {

/// Relative errors: norm of the difference over norm of `before`, the largest
/// of all steps (logits) and of all layers (keys and values of each).
struct Equivalence {
  double logits = 0, caches = 0;

  double worst() const { return std::max(logits, caches); }
  /// The bound for passes, which may reorder f64 arithmetic but nothing more.
  static constexpr double kTolerance = 1e-12;
  bool holds(double tolerance = kTolerance) const {
    return worst() <= tolerance;
  }
};

/// Three sequences, 26 tokens: a ragged first step of lengths 7, 1 and 4 with a
/// padded row; one that continues all three (5, 1, 0); one last token for each
/// but the first, last rows' logits only. Token numbers are below `vocabSize`.
std::vector<Step> defaultSchedule(int64_t vocabSize);

/// Runs the steps with the same random weights on both. The modules may differ
/// in the layout and block size of their caches; contents are compared by
/// sequence and position. Error: one of them does not run, or numbers or shapes
/// of results differ.
llvm::Expected<Equivalence> compare(ModuleOp before, ModuleOp after,
                                    uint64_t seed, ArrayRef<Step> schedule);

/// The same with defaultSchedule for the vocabulary of `before`'s logits.
llvm::Expected<Equivalence> compare(ModuleOp before, ModuleOp after,
                                    uint64_t seed = 1);

} // namespace mlir::prefill::reference

#endif // PREFILL_REFERENCE_EQUIVALENCE_H
