//===- Evaluators.h - one plain function for each op ------------*- C++ -*-===//
// The meaning of the ops (docs/spec.md), written to be read: f64, element by
// element, one loop for each index of the formula. No code is shared with
// lib/Analysis or lib/Codegen, so that it stays an independent witness. Shapes
// have been checked by the ops' verifiers; what depends on values (token
// numbers, slots, lengths) is checked here.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_REFERENCE_EVALUATORS_H
#define PREFILL_REFERENCE_EVALUATORS_H

#include "prefill/Reference/Batch.h"
#include "prefill/Reference/Tensor.h"
#include <optional>

namespace mlir::prefill::reference {

/// table [V, h] -> [M, h]. Error: a token outside the vocabulary.
llvm::Expected<Tensor> embed(const Batch &batch, const Tensor &table);

/// x [M, h], gain [group] -> [M, h]; each group of `gain` channels is divided
/// by the root of its mean square.
Tensor rmsNorm(const Tensor &input, const Tensor &gain, double eps);

/// x [M, K], w [N, K], bias [N] or null -> [M, N].
Tensor linear(const Tensor &input, const Tensor &weight, const Tensor *bias);

/// inv_freq of the attribute, f32 as transformers computes it.
std::vector<float> inverseFrequencies(RopeAttr rope);

/// [maxPosition, rotary_dim]: the cosines of the row's angles, then the sines.
/// The angles are f32, cosine and sine f64.
Tensor ropeTable(RopeAttr rope, int64_t maxPosition);

/// x [M, heads * headDim] rotated by each row's position. The angles come from
/// `table` when it is given. Error: a position outside the table, or negative.
llvm::Expected<Tensor> rope(const Tensor &input, const Batch &batch,
                            const Tensor *table, RopeAttr rope,
                            int64_t headDim);

/// k [M, heads * head_dim_qk], v [M, heads * head_dim_v]. Error: a slot outside
/// the cache, or two rows that write the same slot.
llvm::Expected<KVCache> kvAppend(const Tensor &key, const Tensor &value,
                                 const KVCache &cache, const Batch &batch);

struct AttentionParameters {
  double scale = 1;
  bool causal = true;
  std::optional<int64_t> slidingWindow;
  std::optional<double> softcap;
  bool base2 = false;
};
/// q [M, num_q_heads * head_dim_qk] -> [M, num_q_heads * head_dim_v]. Error: a
/// visible key that was never written or has no block.
llvm::Expected<Tensor> attention(const Tensor &query, const KVCache &cache,
                                 const Batch &batch,
                                 const AttentionParameters &parameters);

/// The outputs [M, numSplits * num_q_heads * head_dim_v] and log-sum-exps [M,
/// numSplits * num_q_heads] of splits of the keys. A split of which a row sees
/// no key has output 0 and log-sum-exp -inf.
struct SplitAttention {
  Tensor outputs, lse;
};
llvm::Expected<SplitAttention>
splitAttention(const Tensor &query, const KVCache &cache, const Batch &batch,
               const AttentionParameters &parameters, int64_t numSplits);

/// partials [M, S * channels], lse [M, S * heads] -> [M, channels].
Tensor combineSplits(const Tensor &partials, const Tensor &lse,
                     int64_t channels);

Tensor gatedAct(GateKind kind, const Tensor &gate, const Tensor &up);
Tensor add(const Tensor &lhs, const Tensor &rhs);
Tensor scale(const Tensor &input, double factor);

/// [M, h] -> [R, h].
Tensor selectRows(const Tensor &input, const Batch &batch);

/// Neighbouring groups of columns of the given widths.
std::vector<Tensor> split(const Tensor &input, ArrayRef<int64_t> widths);

/// Runs of `granularity` columns go to the first and the second result in turn,
/// until each has `width`.
std::pair<Tensor, Tensor> deinterleave(const Tensor &input, int64_t granularity,
                                       int64_t width);

Tensor biasAdd(const Tensor &input, const Tensor &bias);

/// [M, N] -> [M, partials].
Tensor rowSumsq(const Tensor &input, int64_t partials);

/// Each row of x [M, K] as integers from -127 to 127 and its scale [M, 1]; a
/// row whose largest magnitude is below 2^-100 is all 0 with scale 0. With
/// Rounding::Model the factor of a row and its products are f32, which decides
/// to which side halves go.
struct QuantizedRows {
  Tensor integers, scales;
};
QuantizedRows quantizeRows(const Tensor &input, Rounding rounding);

/// x [M, N] * (rowScale [M, 1] * columnScale [N]).
Tensor dequantize(const Tensor &input, const Tensor &rowScale,
                  const Tensor &columnScale);

/// x [M, N] * 1 / sqrt(sum(sumsq [M, P]) / channels + eps).
Tensor rowRMSScale(const Tensor &input, const Tensor &sumsq, double eps,
                   int64_t channels);

} // namespace mlir::prefill::reference

#endif // PREFILL_REFERENCE_EVALUATORS_H
