//===- AttentionCase.h - one attention kernel of target cpu -----*- C++ -*-===//
#ifndef PREFILL_TEST_UNIT_ATTENTION_ATTENTIONCASE_H
#define PREFILL_TEST_UNIT_ATTENTION_ATTENTIONCASE_H

#include "AttentionProblem.h"
#include "CompiledKernels.h"

namespace prefill_test {

struct AttentionConfig : AttentionProblem {
  const mlir::prefill::CpuIsa *isa = nullptr;
  std::string describe() const;
};

/// Compiles (once for each configuration) and runs.
class AttentionCase {
public:
  explicit AttentionCase(const AttentionConfig &config);
  bool ok() const { return kernels != nullptr; }
  double compileSeconds() const { return kernels->compileSeconds(); }

  /// Runs the kernel on the batch, with NaN in everything that must not matter,
  /// scratch among it. Fails the test when rows of the output that belong to
  /// no sequence change. `paddedRows` rows are added to M. With selectedRows
  /// the result has the rows of `selection`, of the whole batch.
  AttentionResult run(const std::vector<Sequence> &sequences,
                      int64_t paddedRows = 0,
                      const std::vector<int32_t> &selection = {0});

  /// Runs and compares with the reference: the norm of the difference over the
  /// norm, and rows without a key are exactly 0.
  void check(const std::vector<Sequence> &sequences, int64_t paddedRows = 0);

  AttentionConfig config;

private:
  std::shared_ptr<CompiledKernels> kernels;
};

} // namespace prefill_test

#endif // PREFILL_TEST_UNIT_ATTENTION_ATTENTIONCASE_H
