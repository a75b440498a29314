//===- ResidualProblem.h - a gemm plus residual, with row sums --*- C++ -*-===//
#ifndef PREFILL_TEST_UNIT_CUDA_RESIDUALPROBLEM_H
#define PREFILL_TEST_UNIT_CUDA_RESIDUALPROBLEM_H

#include "CudaKernel.h"

namespace prefill_test {

/// As o_proj and down write the residual stream: the sums of squares are those
/// of the stored values, a partial for each tile.
struct ResidualProblem {
  Element element = Element::BF16;
  int64_t n = 0, blockM = 0, blockN = 0;
  int64_t k = 48, rows = 13;

  /// A module of level config.
  std::string text() const;
  /// Runs and compares with plain loops.
  void check(CudaKernel &kernel, uint64_t seed) const;
};

} // namespace prefill_test

#endif // PREFILL_TEST_UNIT_CUDA_RESIDUALPROBLEM_H
