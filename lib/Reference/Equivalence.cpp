//===- Equivalence.cpp - runs two modules and compares --------------------===//
#include "prefill/Reference/Equivalence.h"
#include <cmath>

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;
using llvm::Twine;

std::vector<Step> mlir::prefill::reference::defaultSchedule(int64_t vocabSize) {
  // Any numbers that do not repeat soon.
  int64_t state = 1;
  auto draw = [&](int64_t count) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) {
      state = (state * 7919 + 104729) % 1000003;
      tokens.push_back(state % vocabSize);
    }
    return tokens;
  };
  std::vector<Step> steps(3);
  steps[0].tokens = {draw(7), draw(1), draw(4)};
  steps[0].paddedRows = 1;
  steps[1].tokens = {draw(5), draw(1), draw(0)};
  steps[2].tokens = {draw(0), draw(1), draw(1)};
  steps[2].allRows = false;
  return steps;
}

namespace {
/// The square sums of a comparison.
struct Difference {
  void add(double before, double after) {
    // A NaN on one side alone is as wrong as can be; on both, nothing was
    // there.
    if (std::isnan(before) != std::isnan(after))
      difference = INFINITY;
    if (std::isnan(before) || std::isnan(after))
      return;
    difference += (before - after) * (before - after);
    size += before * before;
  }
  double relative() const {
    return difference == 0 ? 0 : std::sqrt(difference / size);
  }
  double difference = 0, size = 0;
};

/// One of the two modules with its caches in whatever layout.
struct Side {
  static Expected<Side> create(ModuleOp module, WeightProvider &weights,
                               int64_t numSequences, int64_t maxLength) {
    Interpreter interpreter(module, weights);
    Expected<int64_t> blockSize = interpreter.blockSize();
    if (!blockSize)
      return blockSize.takeError();
    BatchBuilder builder(numSequences, maxLength, *blockSize);
    Expected<std::vector<KVCache>> caches =
        interpreter.makeCaches(builder.numBlocks());
    if (!caches)
      return caches.takeError();
    return Side{std::move(interpreter), std::move(builder), std::move(*caches)};
  }

  Expected<Tensor> run(const Step &step) {
    Expected<Batch> batch = builder.next(step);
    if (!batch)
      return batch.takeError();
    return interpreter.run(*batch, caches);
  }

  Interpreter interpreter;
  BatchBuilder builder;
  std::vector<KVCache> caches;
};
} // namespace

/// The largest error of a layer's keys or values.
static Expected<double> compareCaches(const Side &before, const Side &after,
                                      int64_t numSequences) {
  if (before.caches.size() != after.caches.size())
    return createStringError("the module has " + Twine(before.caches.size()) +
                             " caches before and " +
                             Twine(after.caches.size()) + " after");
  double worst = 0;
  for (auto [layer, pair] :
       llvm::enumerate(llvm::zip(before.caches, after.caches))) {
    auto &[x, y] = pair;
    if (x.numKvHeads != y.numKvHeads || x.headDimQk != y.headDimQk ||
        x.headDimV != y.headDimV)
      return createStringError("cache " + Twine(layer) +
                               " has other heads before than after");
    Difference keys, values;
    for (int64_t sequence = 0; sequence < numSequences; ++sequence)
      for (int64_t position = 0; position < before.builder.length(sequence);
           ++position) {
        int64_t from = before.builder.slotOf(sequence, position);
        int64_t to = after.builder.slotOf(sequence, position);
        for (int64_t head = 0; head < x.numKvHeads; ++head) {
          for (int64_t d = 0; d < x.headDimQk; ++d)
            keys.add(x.key(from, head)[d], y.key(to, head)[d]);
          for (int64_t d = 0; d < x.headDimV; ++d)
            values.add(x.value(from, head)[d], y.value(to, head)[d]);
        }
      }
    worst = std::max({worst, keys.relative(), values.relative()});
  }
  return worst;
}

Expected<Equivalence>
mlir::prefill::reference::compare(ModuleOp before, ModuleOp after,
                                  uint64_t seed, ArrayRef<Step> schedule) {
  RandomWeights weights(seed);
  int64_t numSequences = schedule.empty() ? 0 : schedule.front().tokens.size();
  int64_t maxLength = 0;
  for (int64_t sequence = 0; sequence < numSequences; ++sequence) {
    int64_t length = 0;
    for (const Step &step : schedule)
      length += step.tokens[sequence].size();
    maxLength = std::max(maxLength, length);
  }
  auto named = [](const char *which, Error error) {
    return createStringError(Twine(which) + ": " +
                             llvm::toString(std::move(error)));
  };
  Expected<Side> x = Side::create(before, weights, numSequences, maxLength);
  if (!x)
    return named("before", x.takeError());
  Expected<Side> y = Side::create(after, weights, numSequences, maxLength);
  if (!y)
    return named("after", y.takeError());

  Equivalence result;
  for (const Step &step : schedule) {
    Expected<Tensor> expected = x->run(step);
    if (!expected)
      return named("before", expected.takeError());
    Expected<Tensor> actual = y->run(step);
    if (!actual)
      return named("after", actual.takeError());
    if (expected->shape != actual->shape)
      return createStringError("logits have other shapes before than after");
    Difference difference;
    for (auto [a, b] : llvm::zip(expected->values, actual->values))
      difference.add(a, b);
    result.logits = std::max(result.logits, difference.relative());
  }
  Expected<double> caches = compareCaches(*x, *y, numSequences);
  if (!caches)
    return caches.takeError();
  result.caches = *caches;
  return result;
}

Expected<Equivalence> mlir::prefill::reference::compare(ModuleOp before,
                                                        ModuleOp after,
                                                        uint64_t seed) {
  auto entry = before.lookupSymbol<func::FuncOp>(kEntryName);
  if (!entry || entry.getNumResults() == 0 ||
      !isa<RankedTensorType>(entry.getResultTypes().front()))
    return createStringError("before: the module has no function @" +
                             Twine(kEntryName) + " that returns logits first");
  int64_t vocab =
      cast<RankedTensorType>(entry.getResultTypes().front()).getShape().back();
  return compare(before, after, seed, defaultSchedule(vocab));
}
