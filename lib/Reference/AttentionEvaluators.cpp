//===- AttentionEvaluators.cpp - kv_append and attention ------------------===//
#include "prefill/Reference/Evaluators.h"
#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;
using llvm::Twine;

Expected<KVCache> mlir::prefill::reference::kvAppend(const Tensor &key,
                                                     const Tensor &value,
                                                     const KVCache &cache,
                                                     const Batch &batch) {
  KVCache result = cache;
  std::vector<bool> taken(cache.numSlots());
  for (int64_t row = 0; row < batch.numRows(); ++row) {
    int64_t slot = batch.slotMapping[row];
    if (slot == -1)
      continue;
    if (slot < 0 || slot >= cache.numSlots())
      return createStringError("slot " + Twine(slot) + " of row " + Twine(row) +
                               " is outside the cache of " +
                               Twine(cache.numSlots()) + " slots");
    if (taken[slot])
      return createStringError("slot " + Twine(slot) + " of row " + Twine(row) +
                               " is written by an earlier row too");
    taken[slot] = true;
    result.written[slot] = true;
    for (int64_t head = 0; head < cache.numKvHeads; ++head) {
      for (int64_t d = 0; d < cache.headDimQk; ++d)
        result.key(slot, head)[d] = key.row(row)[head * cache.headDimQk + d];
      for (int64_t d = 0; d < cache.headDimV; ++d)
        result.value(slot, head)[d] = value.row(row)[head * cache.headDimV + d];
    }
  }
  return result;
}

/// The mask, by its definition: does the query at `position` see `key`?
static bool isVisible(int64_t position, int64_t key,
                      const AttentionParameters &parameters) {
  if (parameters.causal && key > position)
    return false;
  if (parameters.slidingWindow && key <= position - *parameters.slidingWindow)
    return false;
  return true;
}

/// scale * q k^T and the softcap; the result's unit is log2 with base2.
static double score(const double *query, const double *key, int64_t headDim,
                    const AttentionParameters &parameters) {
  double sum = 0;
  for (int64_t d = 0; d < headDim; ++d)
    sum += query[d] * key[d];
  sum *= parameters.scale;
  if (!parameters.softcap)
    return sum;
  double cap = *parameters.softcap;
  if (parameters.base2)
    return M_LOG2E * cap * std::tanh(sum * M_LN2 / cap);
  return cap * std::tanh(sum / cap);
}

namespace {
/// A key that a row sees: its position, where it lies, and its score.
struct VisibleKey {
  int64_t position, slot;
  double score;
};
} // namespace

/// result [headDimV] = softmax(scores) v; zero when there is no key. Returns
/// the log-sum-exp of the scores.
static double weighValues(ArrayRef<VisibleKey> keys, const KVCache &cache,
                          int64_t kvHead, bool base2, double *result) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const VisibleKey &key : keys)
    largest = std::max(largest, key.score);
  double sum = 0;
  for (const VisibleKey &key : keys) {
    double exponent = key.score - largest;
    double weight = base2 ? std::exp2(exponent) : std::exp(exponent);
    sum += weight;
    const double *value = cache.value(key.slot, kvHead);
    for (int64_t d = 0; d < cache.headDimV; ++d)
      result[d] += weight * value[d];
  }
  if (keys.empty())
    return largest;
  for (int64_t d = 0; d < cache.headDimV; ++d)
    result[d] /= sum;
  return (base2 ? M_LN2 : 1.0) * largest + std::log(sum);
}

/// Calls `visit` with the keys that a row sees, for each row of each sequence
/// and each query head: visit(sequence, row, head, keys).
template <typename Visit>
static Error forEachRow(const Tensor &query, const KVCache &cache,
                        const Batch &batch,
                        const AttentionParameters &parameters, Visit visit) {
  int64_t numQHeads = query.channels() / cache.headDimQk;
  int64_t group = numQHeads / cache.numKvHeads;
  std::vector<VisibleKey> keys;
  for (int64_t sequence = 0; sequence < batch.numSequences(); ++sequence) {
    int64_t kvLength = batch.kvLens[sequence];
    int64_t queryLength = batch.queryLength(sequence);
    for (int64_t i = 0; i < queryLength; ++i) {
      int64_t row = batch.cuSeqlens[sequence] + i;
      int64_t position = kvLength - queryLength + i;
      for (int64_t head = 0; head < numQHeads; ++head) {
        const double *q = query.row(row) + head * cache.headDimQk;
        keys.clear();
        for (int64_t j = 0; j < kvLength; ++j) {
          if (!isVisible(position, j, parameters))
            continue;
          int64_t slot = batch.slotOf(sequence, j, cache.blockSize);
          if (slot < 0 || slot >= cache.numSlots() || !cache.written[slot])
            return createStringError(
                "key " + Twine(j) + " of sequence " + Twine(sequence) +
                " is read at slot " + Twine(slot) + ", which " +
                (slot < 0 || slot >= cache.numSlots() ? "does not exist"
                                                      : "was never written"));
          keys.push_back({j, slot,
                          score(q, cache.key(slot, head / group),
                                cache.headDimQk, parameters)});
        }
        visit(sequence, row, head, keys);
      }
    }
  }
  return Error::success();
}

Expected<Tensor>
mlir::prefill::reference::attention(const Tensor &query, const KVCache &cache,
                                    const Batch &batch,
                                    const AttentionParameters &parameters) {
  int64_t numQHeads = query.channels() / cache.headDimQk;
  int64_t group = numQHeads / cache.numKvHeads;
  // Rows of no sequence stay zero.
  Tensor result({query.rows(), numQHeads * cache.headDimV});
  if (Error error = forEachRow(
          query, cache, batch, parameters,
          [&](int64_t, int64_t row, int64_t head, ArrayRef<VisibleKey> keys) {
            weighValues(keys, cache, head / group, parameters.base2,
                        result.row(row) + head * cache.headDimV);
          }))
    return error;
  return result;
}

/// Keys of each split of a sequence with `kvLength` keys: an even share of
/// them, rounded up to whole blocks of 128.
static int64_t keysPerSplit(int64_t kvLength, int64_t numSplits) {
  int64_t share = (kvLength + numSplits - 1) / numSplits;
  return (share + 127) / 128 * 128;
}

Expected<SplitAttention> mlir::prefill::reference::splitAttention(
    const Tensor &query, const KVCache &cache, const Batch &batch,
    const AttentionParameters &parameters, int64_t numSplits) {
  int64_t numQHeads = query.channels() / cache.headDimQk;
  int64_t group = numQHeads / cache.numKvHeads;
  SplitAttention result{
      Tensor({query.rows(), numSplits * numQHeads * cache.headDimV}),
      Tensor({query.rows(), numSplits * numQHeads})};
  for (int64_t row = 0; row < query.rows(); ++row)
    std::fill_n(result.lse.row(row), result.lse.channels(),
                -std::numeric_limits<double>::infinity());
  std::vector<VisibleKey> ofSplit;
  if (Error error = forEachRow(
          query, cache, batch, parameters,
          [&](int64_t sequence, int64_t row, int64_t head,
              ArrayRef<VisibleKey> keys) {
            int64_t length = keysPerSplit(batch.kvLens[sequence], numSplits);
            for (int64_t split = 0; split < numSplits; ++split) {
              ofSplit.clear();
              for (const VisibleKey &key : keys)
                if (key.position / length == split)
                  ofSplit.push_back(key);
              int64_t place = split * numQHeads + head;
              result.lse.row(row)[place] =
                  weighValues(ofSplit, cache, head / group, parameters.base2,
                              result.outputs.row(row) + place * cache.headDimV);
            }
          }))
    return error;
  return result;
}

Tensor mlir::prefill::reference::combineSplits(const Tensor &partials,
                                               const Tensor &lse,
                                               int64_t channels) {
  int64_t numSplits = partials.channels() / channels;
  int64_t numHeads = lse.channels() / numSplits;
  int64_t headDim = channels / numHeads;
  Tensor result({partials.rows(), channels});
  for (int64_t row = 0; row < partials.rows(); ++row)
    for (int64_t head = 0; head < numHeads; ++head) {
      auto lseOf = [&](int64_t split) {
        return lse.row(row)[split * numHeads + head];
      };
      double largest = -std::numeric_limits<double>::infinity();
      for (int64_t split = 0; split < numSplits; ++split)
        largest = std::max(largest, lseOf(split));
      double *out = result.row(row) + head * headDim;
      double sum = 0;
      for (int64_t split = 0; split < numSplits; ++split) {
        if (lseOf(split) == -std::numeric_limits<double>::infinity())
          continue;
        double weight = std::exp(lseOf(split) - largest);
        const double *partial =
            partials.row(row) + split * channels + head * headDim;
        sum += weight;
        for (int64_t d = 0; d < headDim; ++d)
          out[d] += weight * partial[d];
      }
      if (sum != 0)
        for (int64_t d = 0; d < headDim; ++d)
          out[d] /= sum;
    }
  return result;
}
