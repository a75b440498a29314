//===- Weights.h - where the interpreter's weights come from ----*- C++ -*-===//
#ifndef PREFILL_REFERENCE_WEIGHTS_H
#define PREFILL_REFERENCE_WEIGHTS_H

#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Reference/Tensor.h"
#include "prefill/checkpoint/Safetensors.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include <memory>

namespace mlir::prefill::reference {

/// Tensors of a checkpoint by name.
class WeightProvider {
public:
  virtual ~WeightProvider();
  /// The tensor, which must have the shape. The error names the tensor.
  virtual llvm::Expected<Tensor> get(StringRef name,
                                     ArrayRef<int64_t> shape) = 0;
};

/// prefill/checkpoint/RandomWeights.h: the numbers that `prefill-run
/// --random-weights` uses.
class RandomWeights : public WeightProvider {
public:
  explicit RandomWeights(uint64_t seed) : seed(seed) {}
  llvm::Expected<Tensor> get(StringRef name, ArrayRef<int64_t> shape) override;

private:
  uint64_t seed;
};

/// A directory of safetensors, dtypes F64, F32, BF16 and F16.
class CheckpointWeights : public WeightProvider {
public:
  explicit CheckpointWeights(::prefill::rt::Checkpoint checkpoint)
      : checkpoint(std::move(checkpoint)) {}
  llvm::Expected<Tensor> get(StringRef name, ArrayRef<int64_t> shape) override;

private:
  ::prefill::rt::Checkpoint checkpoint;
};

/// Values made by hand, for tests.
class GivenWeights : public WeightProvider {
public:
  void set(StringRef name, Tensor value) { values[name] = std::move(value); }
  llvm::Expected<Tensor> get(StringRef name, ArrayRef<int64_t> shape) override;

private:
  llvm::StringMap<Tensor> values;
};

/// Evaluates the load-time transform program of a module. With Rounding::Model
/// steps are f32 and the weight that an op reads is rounded once, to its
/// element type.
class WeightProgram {
public:
  WeightProgram(ModuleOp module, WeightProvider &provider, Rounding rounding)
      : symbols(module), provider(provider), rounding(rounding) {}

  /// The value that `get_weight` gives; computed once. Packed weights are
  /// refused.
  llvm::Expected<std::shared_ptr<const Tensor>> get(StringRef name);

private:
  llvm::Expected<Tensor> evaluate(StringRef name, unsigned depth);
  llvm::Expected<Tensor> evaluate(WeightOp weight, unsigned depth);

  SymbolTable symbols;
  WeightProvider &provider;
  Rounding rounding;
  llvm::StringMap<std::shared_ptr<const Tensor>> done;
};

} // namespace mlir::prefill::reference

#endif // PREFILL_REFERENCE_WEIGHTS_H
