// Ways to run a prompt that must give the same bits on every device.
#ifndef PREFILL_TEST_UNIT_ENDTOEND_WAYSTORUN_H
#define PREFILL_TEST_UNIT_ENDTOEND_WAYSTORUN_H

#include "CompiledModel.h"

namespace prefill::test {

/// Logits of a prompt in pieces of the given sizes, the last one repeated. A
/// piece of one token is a decode step.
Logits inPieces(PromptRun &run, const std::vector<int32_t> &tokens,
                const std::vector<size_t> &sizes);
Logits inPieces(const CompiledModel &model, const std::vector<int32_t> &tokens,
                const std::vector<size_t> &sizes);

/// NaN in the arena, the scratch and every cache slot without a token, canaries
/// behind every buffer: not a bit changes in prompts of these lengths, nor in
/// `decodeSteps` steps behind each.
void expectPoisonDoesNotMatter(const CompiledModel &model,
                               const std::vector<int64_t> &lengths,
                               int64_t decodeSteps);

/// Three sequences' chunks, on top of different pasts, sequences not in cache
/// order.
struct RaggedBatch {
  std::vector<int64_t> past, lengths;
};

/// Logits [3] of the chunks in one batch, and of each alone.
struct BatchLogits {
  std::vector<Logits> together, alone;
};
BatchLogits runBatch(const CompiledModel &model, const RaggedBatch &batch);

void expectSequencesDoNotSeeTheirBatch(const CompiledModel &model);

/// Row `length - 1` of all logits of `tokens` is the logits of a prompt of
/// `length` tokens.
void expectRowsAreTheirPrompts(const CompiledModel &model,
                               const std::vector<int32_t> &tokens,
                               const std::vector<int64_t> &lengths);

} // namespace prefill::test

#endif // PREFILL_TEST_UNIT_ENDTOEND_WAYSTORUN_H
