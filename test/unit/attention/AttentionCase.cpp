#include "AttentionCase.h"
#include "gtest/gtest.h"
#include <cmath>
#include <map>

namespace prefill_test {

std::string AttentionConfig::describe() const {
  return isa->name.str() + " " + AttentionProblem::describe();
}

AttentionCase::AttentionCase(const AttentionConfig &config) : config(config) {
  static std::map<std::string, std::shared_ptr<CompiledKernels>> compiled;
  auto &slot = compiled[config.describe()];
  if (!slot)
    slot = CompiledKernels::compile(config.source(), config.pipeline(),
                                    *config.isa);
  kernels = slot;
}

AttentionResult AttentionCase::run(const std::vector<Sequence> &sequences,
                                   int64_t paddedRows,
                                   const std::vector<int32_t> &selection) {
  AttentionBatch batch(config, sequences, paddedRows, selection);
  // Dirty scratch with a guard behind it, workgroups one by one from the last.
  constexpr size_t kScratchGuard = 4096;
  std::vector<unsigned char> scratch(
      kernels->scratchBytes() + 64 + kScratchGuard, 0xff);
  unsigned char *aligned = scratch.data();
  while (reinterpret_cast<uintptr_t>(aligned) % 64)
    ++aligned;
  KernelEntry entry = kernels->entry("attention");
  EXPECT_TRUE(entry);
  for (int64_t wg = batch.workgroups; wg-- > 0;)
    entry(batch.words.data(), wg, wg + 1, aligned);
  for (size_t i = 0; i < kScratchGuard; ++i)
    EXPECT_EQ(aligned[kernels->scratchBytes() + i], 0xff)
        << "written behind the scratch at " << i;
  return batch.result();
}

void AttentionCase::check(const std::vector<Sequence> &sequences,
                          int64_t paddedRows) {
  ASSERT_TRUE(ok()) << config.describe();
  std::string trace = config.describe();
  for (const Sequence &sequence : sequences)
    trace += " [" + std::to_string(sequence.seqlenQ) + " of " +
             std::to_string(sequence.seqlenKv) + "]";
  SCOPED_TRACE(trace);
  AttentionResult result = run(sequences, paddedRows);
  std::vector<double> expected = attentionReference(config, sequences);
  ASSERT_EQ(result.values.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_TRUE(std::isfinite(result.values[i])) << "element " << i;
  expectEmptyRowsZero(config, sequences, result);
  // bf16: the output is rounded (half an ulp is 2^-9, on average less), and so
  // are the probabilities.
  double tolerance = config.dtype == Dtype::BF16 ? 4e-3 : 1e-6;
  ASSERT_LE(relativeError(result.values, expected), tolerance);
}

} // namespace prefill_test
