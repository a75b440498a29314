//===- AttentionProblem.h - inputs of an attention kernel -------*- C++ -*-===//
// What the tests of all targets share: the kernel's source, a batch with its
// cache in memory, and double loops over the same numbers.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TEST_UNIT_ATTENTION_ATTENTIONPROBLEM_H
#define PREFILL_TEST_UNIT_ATTENTION_ATTENTIONPROBLEM_H

#include <cstdint>
#include <string>
#include <vector>

namespace prefill_test {

enum class Form {
  Specialized, // full and edge loops
  OneLoop,     // prefill-specialize-causal-blocks left out
  Plain        // prefill-convert-attention-to-online left out
};

enum class Dtype { F32, BF16, F16 };
const char *name(Dtype dtype);
int64_t bytesOf(Dtype dtype);
/// Largest relative error of a rounding.
double unitRoundoff(Dtype dtype);
double roundTo(Dtype dtype, double value);

/// What is known at compile time.
struct AttentionProblem {
  Dtype dtype = Dtype::BF16;
  std::string layout = "contiguous"; // head_major, paged_nhd, paged_vnni
  int64_t blockSize = 1024;
  int64_t kvHeads = 2, group = 2;
  int64_t headDimQk = 64, headDimV = 64;
  bool causal = true;
  int64_t window = 0;
  double scale = 1.0;
  bool base2 = true;
  int64_t blockQ = 32, blockKv = 64;
  /// Of the op, behind those above.
  std::string moreAttributes;
  Form form = Form::Specialized;
  /// The result has the rows that a call selects.
  bool selectedRows = false;
  /// Above 1: the results are those of splits, in f32, and their log-sum-exps.
  int64_t numSplits = 1;

  int64_t heads() const { return kvHeads * group; }
  /// With a block size that suits it.
  void setLayout(const std::string &name) {
    layout = name;
    blockSize = name == "paged_nhd" ? 16 : name == "paged_vnni" ? 32 : 1024;
  }
  std::string describe() const;
  /// A module of level config with the kernel @attention.
  std::string source() const;
  /// Passes from there to level tiled.
  std::string pipeline() const;
};

/// One sequence of a call: its last `seqlenQ` tokens are queries, `seqlenKv`
/// keys are visible to the last of them.
struct Sequence {
  int64_t seqlenQ, seqlenKv;
  /// Which of the tokens' data it holds.
  unsigned seed = 1;
};

/// Bits of an element: f32, or bf16 or f16 in the low half.
using Bits = uint32_t;

struct AttentionResult {
  std::vector<double> values; // [rows, heads * head_dim_v]
  std::vector<Bits> bits;
  /// With splits `values` are the combined ones, `bits` those of every result,
  /// and here are the log-sum-exps [rows, splits * heads].
  std::vector<double> lse;
};

/// Memory that a kernel may touch, filled with NaN, at a multiple of 256.
class AttentionBuffer {
public:
  AttentionBuffer() = default;
  AttentionBuffer(int64_t count, Dtype dtype);

  void set(int64_t i, double value);
  Bits bits(int64_t i) const;
  double get(int64_t i) const;
  unsigned char *at(int64_t i) { return begin() + i * bytesOf(dtype); }
  int64_t numElements() const { return count; }
  int64_t numBytes() const { return count * bytesOf(dtype); }

private:
  unsigned char *begin() { return storage.data() + offset; }
  const unsigned char *begin() const { return storage.data() + offset; }

  Dtype dtype = Dtype::F32;
  int64_t count = 0;
  size_t offset = 0;
  std::vector<unsigned char> storage;
};

/// A call's arguments in memory. Everything that must not matter is NaN: unused
/// slots of the cache, padded rows of the query, and the output.
class AttentionBatch {
public:
  /// `paddedRows` rows are added to M. `selection`: rows of the whole batch,
  /// which with selectedRows are those of the output.
  AttentionBatch(const AttentionProblem &problem,
                 const std::vector<Sequence> &sequences, int64_t paddedRows,
                 const std::vector<int32_t> &selection = {0});
  AttentionBatch(const AttentionBatch &) = delete; // `words` point into it

  std::vector<uint64_t> words; // the launch's
  int64_t workgroups;

  struct Region {
    const char *name;
    void *begin;
    int64_t bytes;
    bool writable;
  };
  std::vector<Region> regions();

  /// The output. Fails the test when what belongs to no sequence changed.
  AttentionResult result() const;

private:
  AttentionResult splitResult() const;
  /// Fails the test when elements outside of [0, count) of `buffer`, which
  /// begin behind a guard, changed.
  static void expectUntouched(const AttentionBuffer &buffer, int64_t count,
                              const char *name);

  const AttentionProblem problem;
  int64_t rowsPad;
  int64_t outRows, outRowsPad; // the output's that belong to the call, and all
  AttentionBuffer cache, query, out, lse, scores;
  std::vector<int32_t> cuSeqlens, kvLens, blockTable, tokens, positions,
      logitsIndices;
  std::vector<int64_t> slots;
};

/// Double loops over the same data.
std::vector<double> attentionReference(const AttentionProblem &problem,
                                       const std::vector<Sequence> &sequences);

/// The same with what a kernel cannot avoid: probabilities rounded before the
/// second product, and the output rounded.
std::vector<double>
roundedAttentionReference(const AttentionProblem &problem,
                          const std::vector<Sequence> &sequences);

/// Sums of p |v|, by element: what rounding probabilities multiplies.
std::vector<double> attentionMagnitudes(const AttentionProblem &problem,
                                        const std::vector<Sequence> &sequences);

/// Natural log-sum-exps of the scores of each split, [rows, splits * heads];
/// -inf where a row sees no key of the split.
std::vector<double> splitLogSumExps(const AttentionProblem &problem,
                                    const std::vector<Sequence> &sequences);

/// Rows of `result` that see no key are exactly 0.
void expectEmptyRowsZero(const AttentionProblem &problem,
                         const std::vector<Sequence> &sequences,
                         const AttentionResult &result);

/// Norm of the difference over the norm of `expected`; 0 when both are 0.
double relativeError(const std::vector<double> &values,
                     const std::vector<double> &expected);

} // namespace prefill_test

#endif // PREFILL_TEST_UNIT_ATTENTION_ATTENTIONPROBLEM_H
