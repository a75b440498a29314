//===- RowBuckets.h - padded row counts -------------------------*- C++ -*-===//
// `row_buckets` of a #prefill.lowering_config: rows are padded to the smallest
// bucket that holds them, above the last to a multiple of it.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_DIALECT_PREFILL_TRANSFORMS_ROWBUCKETS_H
#define PREFILL_DIALECT_PREFILL_TRANSFORMS_ROWBUCKETS_H

#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include <optional>
#include <string>

namespace mlir::prefill {

/// The op's `lowering_config`, inherent or discardable; null without one.
LoweringConfigAttr getLoweringConfig(Operation *op);

/// Padding rows over all rows for the worst count of `previous` + 1 to `bucket`
/// rows, all padded to `bucket`.
double worstPaddingFraction(int64_t previous, int64_t bucket);

/// What is wrong with the buckets, or nullopt: they must be positive and
/// increase.
std::optional<std::string> whyInvalidRowBuckets(ArrayRef<int64_t> buckets);

} // namespace mlir::prefill

#endif // PREFILL_DIALECT_PREFILL_TRANSFORMS_ROWBUCKETS_H
