//===- EpilogueGraph.h - what an epilogue writes ----------------*- C++ -*-===//
#ifndef PREFILL_CODEGEN_COMMON_EPILOGUEGRAPH_H
#define PREFILL_CODEGEN_COMMON_EPILOGUEGRAPH_H

#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {

/// Which columns of the accumulator a value's columns come from. Values that
/// don't come from it have none.
struct EpilogueColumns {
  int64_t offset = 0;      // of column 0: the part of a split
  int64_t granularity = 0; // of the deinterleave above it; 0 without
  bool operator==(const EpilogueColumns &) const = default;
};

/// What an epilogue writes.
struct EpilogueSink {
  /// Quantized and RowScale: the two results of a quantize_rows, whose first
  /// is the `value` of both.
  enum class Kind { Buffer, SumOfSquares, Key, Value, Quantized, RowScale };
  Kind kind;
  mlir::Value value;     // in the region
  mlir::Value target;    // memref of the result, or the cache argument
  int64_t columns;       // of `value`
  EpilogueColumns space; // gemm only
};

/// A region, read once for a target.
class EpilogueGraph {
public:
  /// `body` is the region of a gemm or rowwise, `outs` its buffers, `target`
  /// names the target in messages.
  EpilogueGraph(Block &body, ValueRange outs, StringRef target)
      : body(body), outs(outs), target(target) {}

  /// Finds the sinks. Fails with a diagnostic on nodes that no kernel which
  /// evaluates columns tile by tile can have.
  LogicalResult collect();
  ArrayRef<EpilogueSink> sinks() const { return all; }
  /// Sinks that are evaluated in one loop over columns: same space and width.
  SmallVector<SmallVector<EpilogueSink>> groups() const;
  /// Ops that `sinks` need, in order.
  SmallVector<Operation *> ancestors(ArrayRef<EpilogueSink> sinks) const;

  /// rope, or rms_norm over heads: they need other columns of a head.
  static bool isHeadNode(Operation *op);
  static int64_t headDimOf(Operation *op);
  /// Head dimension of the cache that a Key or Value sink writes.
  static int64_t cacheHeadDim(const EpilogueSink &sink);

  /// Whether `sinks` can be evaluated in tiles of `width` columns that start at
  /// multiples of it: no head is cut. A diagnostic if not.
  LogicalResult verifyTiles(ArrayRef<EpilogueSink> sinks, int64_t width) const;

private:
  LogicalResult trace(Value value, std::optional<EpilogueColumns> &space) const;
  LogicalResult verifyNode(Operation *op) const;
  LogicalResult verifyHeadNode(Operation *op, int64_t width) const;
  LogicalResult add(EpilogueSink sink, Operation *op);

  Block &body;
  ValueRange outs;
  StringRef target;
  SmallVector<EpilogueSink> all;
};

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_COMMON_EPILOGUEGRAPH_H
