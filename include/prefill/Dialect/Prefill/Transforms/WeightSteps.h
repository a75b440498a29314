//===- WeightSteps.h - growing the load-time weight program -----*- C++ -*-===//
// Passes that change a weight add a step to the load-time program: a new
// prefill.weight that is computed from existing ones.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_DIALECT_PREFILL_TRANSFORMS_WEIGHTSTEPS_H
#define PREFILL_DIALECT_PREFILL_TRANSFORMS_WEIGHTSTEPS_H

#include "mlir/IR/Builders.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {

/// The weight that `value` reads, or null if it is no get_weight.
FlatSymbolRefAttr getWeightSymbol(Value value);

/// The weight that a linear or gemm multiplies with.
OpOperand &weightOperand(Operation *projection);

/// The weights that a step reads.
SmallVector<FlatSymbolRefAttr> getStepInputs(Attribute source);

class WeightSteps {
public:
  explicit WeightSteps(ModuleOp module);

  /// Adds `prefill.weight @name : type = source` after the last of its inputs
  /// and returns a get_weight of it at the builder's insertion point. A name
  /// that is taken gets a number. A step that is there already (same source and
  /// type) is used again.
  GetWeightOp append(OpBuilder &builder, Location loc, StringRef name,
                     RankedTensorType type, Attribute source);

private:
  SymbolTable symbols;
  llvm::DenseMap<std::pair<Attribute, Type>, WeightOp> steps;
};

/// `symbol` with its last component that is `part` replaced by `whole`, as in
/// layers.0.q_proj to layers.0.qkv_proj; `symbol.whole` if there is none.
std::string replaceNamePart(StringRef symbol, StringRef part, StringRef whole);

} // namespace mlir::prefill

#endif // PREFILL_DIALECT_PREFILL_TRANSFORMS_WEIGHTSTEPS_H
