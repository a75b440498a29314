// Ways to run a prompt that must give the same bits on every device.
#include "WaysToRun.h"
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace prefill::test {

Logits inPieces(PromptRun &run, const std::vector<int32_t> &tokens,
                const std::vector<size_t> &sizes) {
  Logits logits;
  for (size_t begin = 0, piece = 0; begin < tokens.size(); ++piece) {
    size_t size = sizes[std::min(piece, sizes.size() - 1)];
    size_t end = std::min(begin + size, tokens.size());
    if (end - begin == 1)
      logits = run.decode(tokens[begin]);
    else
      logits = run.prefill({tokens.begin() + begin, tokens.begin() + end});
    begin = end;
  }
  return logits;
}

Logits inPieces(const CompiledModel &model, const std::vector<int32_t> &tokens,
                const std::vector<size_t> &sizes) {
  PromptRun run = model.run();
  return inPieces(run, tokens, sizes);
}

void expectPoisonDoesNotMatter(const CompiledModel &model,
                               const std::vector<int64_t> &lengths,
                               int64_t decodeSteps) {
  for (int64_t length : lengths) {
    std::vector<int32_t> tokens = model.tokens(length + decodeSteps);
    std::vector<int32_t> prompt(tokens.begin(), tokens.begin() + length);
    PromptRun clean = model.run(), poisoned = model.run();
    check(prefill_session_set_poison(poisoned.session.get(), 1), "poison");
    check(prefill_kv_cache_poison_unused(poisoned.cache.get()), "poison cache");
    Logits expected = clean.prefill(prompt);
    ASSERT_TRUE(std::isfinite(expected[0]));
    EXPECT_EQ(poisoned.prefill(prompt), expected) << length << " tokens";
    for (int64_t i = length; i < length + decodeSteps; ++i)
      EXPECT_EQ(poisoned.decode(tokens[i]), clean.decode(tokens[i]))
          << "token " << i;
  }
}

BatchLogits runBatch(const CompiledModel &model, const RaggedBatch &ragged) {
  const std::vector<int64_t> &past = ragged.past, &lengths = ragged.lengths;
  int64_t count = 0;
  for (size_t i = 0; i < 3; ++i)
    count = std::max(count, int64_t(i) + past[i] + lengths[i]);
  std::vector<int32_t> tokens = model.tokens(count);
  PromptRun batch = model.run(3);
  BatchLogits logits;
  std::vector<int32_t> packed, cuSeqlens = {0}, sequences = {2, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    auto begin = tokens.begin() + i;
    std::vector<int32_t> first(begin, begin + past[i]);
    std::vector<int32_t> second(begin + past[i], begin + past[i] + lengths[i]);
    PromptRun single = model.run();
    if (!first.empty()) {
      single.prefill(first);
      std::vector<int32_t> cu = {0, int32_t(first.size())};
      Logits ignored(batch.vocab);
      check(prefill_session_prefill_batch(batch.session.get(), first.data(),
                                          cu.data(), &sequences[i], 1,
                                          ignored.data()),
            "past");
    }
    logits.alone.push_back(single.prefill(second));
    packed.insert(packed.end(), second.begin(), second.end());
    cuSeqlens.push_back(packed.size());
  }
  Logits together(3 * batch.vocab);
  check(prefill_session_prefill_batch(batch.session.get(), packed.data(),
                                      cuSeqlens.data(), sequences.data(), 3,
                                      together.data()),
        "batch");
  for (size_t i = 0; i < 3; ++i)
    logits.together.emplace_back(together.begin() + i * batch.vocab,
                                 together.begin() + (i + 1) * batch.vocab);
  return logits;
}

void expectSequencesDoNotSeeTheirBatch(const CompiledModel &model) {
  BatchLogits logits = runBatch(model, {{5, 0, 64}, {60, 1, 17}});
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(logits.together[i], logits.alone[i]) << "sequence " << i;
}

void expectRowsAreTheirPrompts(const CompiledModel &model,
                               const std::vector<int32_t> &tokens,
                               const std::vector<int64_t> &lengths) {
  PromptRun rows = model.run();
  Logits all(tokens.size() * rows.vocab);
  check(prefill_session_prefill(rows.session.get(), tokens.data(),
                                tokens.size(), 1, all.data()),
        "all rows");
  for (int64_t length : lengths)
    ASSERT_EQ(model.run().prefill({tokens.begin(), tokens.begin() + length}),
              Logits(all.begin() + (length - 1) * rows.vocab,
                     all.begin() + length * rows.vocab))
        << length << " tokens";
}

} // namespace prefill::test
