//===- EmbeddingProblem.h - rows of a table, with row sums ------*- C++ -*-===//
#ifndef PREFILL_TEST_UNIT_CUDA_EMBEDDINGPROBLEM_H
#define PREFILL_TEST_UNIT_CUDA_EMBEDDINGPROBLEM_H

#include "CudaKernel.h"

namespace prefill_test {

/// A module with one rowwise kernel.
std::string rowwiseText(const std::string &arguments,
                        const std::string &attributes, const std::string &body,
                        const std::string &yielded, const std::string &types);

/// Tokens repeat; partial sums are those of the stored values.
struct EmbeddingProblem {
  Element element = Element::BF16;
  int64_t columns = 0, width = 0;

  /// A module of level config.
  std::string text() const;
  /// Runs and compares.
  void check(CudaKernel &kernel, uint64_t seed) const;
};

} // namespace prefill_test

#endif // PREFILL_TEST_UNIT_CUDA_EMBEDDINGPROBLEM_H
