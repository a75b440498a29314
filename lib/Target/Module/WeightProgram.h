//===- WeightProgram.h - weights as the module's load-time program -*- C++
//-*-===//
#ifndef PREFILL_LIB_TARGET_MODULE_WEIGHTPROGRAM_H
#define PREFILL_LIB_TARGET_MODULE_WEIGHTPROGRAM_H

#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/module_generated.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::prefill {

/// The schema's name of an element type; fails with an error at `loc` for one
/// that it does not know.
FailureOr<::prefill::module::DType> dtypeOf(Type type, Location loc);

/// Collects the weights that a plan needs, inputs before their users.
class WeightProgram {
public:
  explicit WeightProgram(ModuleOp module) : module(module) {}
  /// Index of the weight, added with everything that it is made from. A weight
  /// a kernel reads is `resident`.
  FailureOr<uint32_t> add(StringRef name, bool resident);
  std::vector<std::unique_ptr<::prefill::module::WeightT>> take() {
    return std::move(weights);
  }

private:
  LogicalResult setSource(WeightOp op, ::prefill::module::WeightT &weight);
  ModuleOp module;
  llvm::StringMap<uint32_t> indices;
  std::vector<std::unique_ptr<::prefill::module::WeightT>> weights;
};

} // namespace mlir::prefill

#endif // PREFILL_LIB_TARGET_MODULE_WEIGHTPROGRAM_H
