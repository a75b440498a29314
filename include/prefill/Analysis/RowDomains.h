//===- RowDomains.h - which row count a tensor follows ----------*- C++ -*-===//
#ifndef PREFILL_ANALYSIS_ROWDOMAINS_H
#define PREFILL_ANALYSIS_ROWDOMAINS_H

#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "llvm/ADT/DenseMap.h"

namespace mlir::prefill {

/// The row domain of every tensor in a function, regions of gemm and rowwise
/// included: `logits` for what derives from selected rows, `tokens` for the
/// rest. An op's rows are those of its first tensor with a dynamic row count; a
/// gemm's accumulator has its input's rows, its results the rows of what it
/// yields.
class RowDomains {
public:
  explicit RowDomains(func::FuncOp function);

  /// The domain of a value of the function.
  RowDomain get(Value value) const;

private:
  void visit(Operation *op);

  llvm::DenseMap<Value, RowDomain> domains;
};

} // namespace mlir::prefill

#endif // PREFILL_ANALYSIS_ROWDOMAINS_H
