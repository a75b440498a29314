//===- CombineSplitsProblem.h - results of splits to one --------*- C++ -*-===//
#ifndef PREFILL_TEST_CUDA_COMBINESPLITSPROBLEM_H
#define PREFILL_TEST_CUDA_COMBINESPLITSPROBLEM_H

#include "CudaKernel.h"
#include "DeviceMatrix.h"

namespace prefill_test {

/// A rowwise of combine_splits, as prefill-split-kv makes it.
struct CombineSplitsProblem {
  Element element;
  int64_t splits, heads, headDim;

  int64_t columns() const { return heads * headDim; }
  /// The kernel.
  std::string text() const;
  /// Runs it on rows of which splits are missing in every way, their outputs
  /// NaN, and compares with plain loops. Returns the output's bytes.
  std::vector<uint8_t> check(CudaKernel &kernel, uint64_t seed) const;
};

} // namespace prefill_test

#endif // PREFILL_TEST_CUDA_COMBINESPLITSPROBLEM_H
