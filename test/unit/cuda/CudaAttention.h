//===- CudaAttention.h - one attention kernel of target cuda ----*- C++ -*-===//
#ifndef PREFILL_TEST_UNIT_CUDA_CUDAATTENTION_H
#define PREFILL_TEST_UNIT_CUDA_CUDAATTENTION_H

#include "../attention/AttentionProblem.h"
#include "emulation/Emulator.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <functional>
#include <memory>
#include <optional>

namespace prefill_test {

using namespace prefill::rt::emulation;

/// Compiles (once for each problem) and runs in the emulator.
class CudaAttention {
public:
  explicit CudaAttention(const AttentionProblem &problem,
                         const std::string &chip = "sm_80");
  /// With a change to the NVVM form; false, after a failure of the test: could
  /// not.
  CudaAttention(const AttentionProblem &problem,
                const std::function<bool(mlir::ModuleOp)> &edit);
  bool ok() const { return program != nullptr; }
  const Program &code() const { return *program; }

  struct Run {
    AttentionResult result;
    LaunchCounters counters;
  };
  /// Runs the kernel on a batch with NaN in everything that must not matter,
  /// and expects no finding of the emulator.
  Run run(const std::vector<Sequence> &sequences, int64_t paddedRows = 0,
          const LaunchOptions &options = {});

  /// Runs and compares with double loops; see the comment in the source for
  /// the bound. Rows without a key are exactly 0.
  void check(const std::vector<Sequence> &sequences, int64_t paddedRows = 0,
             uint64_t seed = 0);

  AttentionProblem problem;
  /// Of the last run: the emulator's finding, and the counters, which are
  /// empty then.
  std::optional<Report> report;
  LaunchCounters counters;

private:
  std::shared_ptr<Program> program;
};

/// The NVVM form of a problem's kernel; null, after a failure of the test, on
/// an error.
mlir::OwningOpRef<mlir::ModuleOp> nvvmAttention(const AttentionProblem &problem,
                                                const std::string &chip);

/// What the compiler says about a problem that it refuses.
std::string refusalOfAttention(const AttentionProblem &problem,
                               const std::string &chip);

} // namespace prefill_test

#endif // PREFILL_TEST_UNIT_CUDA_CUDAATTENTION_H
