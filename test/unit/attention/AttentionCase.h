//===- AttentionCase.h - one attention kernel and inputs for it -----------===//
#ifndef PREFILL_TEST_UNIT_ATTENTION_ATTENTIONCASE_H
#define PREFILL_TEST_UNIT_ATTENTION_ATTENTIONCASE_H

#include "CompiledKernels.h"
#include <string>
#include <vector>

namespace prefill_test {

enum class Form {
  Specialized, // full and edge loops
  OneLoop,     // prefill-specialize-causal-blocks left out
  Plain        // prefill-convert-attention-to-online left out
};

/// What is known at compile time.
struct AttentionConfig {
  const mlir::prefill::CpuIsa *isa = nullptr;
  bool bf16 = true;
  std::string layout = "contiguous"; // head_major, paged_nhd, paged_vnni
  int64_t blockSize = 1024;
  int64_t kvHeads = 2, group = 2;
  int64_t headDimQk = 64, headDimV = 64;
  bool causal = true;
  int64_t window = 0;
  double scale = 1.0;
  bool base2 = true;
  int64_t blockQ = 32, blockKv = 64;
  Form form = Form::Specialized;

  int64_t heads() const { return kvHeads * group; }
  /// With a block size that suits it.
  void setLayout(const std::string &name) {
    layout = name;
    blockSize = name == "paged_nhd" ? 16 : name == "paged_vnni" ? 32 : 1024;
  }
  std::string describe() const;
  std::string source() const;
};

/// One sequence of a call: its last `seqlenQ` tokens are queries, `seqlenKv`
/// keys are visible to the last of them.
struct Sequence {
  int64_t seqlenQ, seqlenKv;
  /// Which of the tokens' data it holds.
  unsigned seed = 1;
};

/// Bits of an element: f32 or bf16 in the low half.
using Bits = uint32_t;

struct AttentionResult {
  std::vector<double> values; // [rows, heads * head_dim_v]
  std::vector<Bits> bits;
};

/// Compiles (once for each configuration) and runs.
class AttentionCase {
public:
  explicit AttentionCase(const AttentionConfig &config);
  bool ok() const { return kernels != nullptr; }
  double compileSeconds() const { return kernels->compileSeconds(); }

  /// Runs the kernel on the batch. Everything that must not matter is NaN:
  /// unused slots of the cache, padded rows of the query, scratch, and rows of
  /// the output before the call. Fails the test when rows of the output that
  /// belong to no sequence change. `paddedRows` rows are added to M.
  AttentionResult run(const std::vector<Sequence> &sequences,
                      int64_t paddedRows = 0);

  /// Double loops over the same data.
  std::vector<double> reference(const std::vector<Sequence> &sequences) const;

  /// Runs and compares with the reference: the norm of the difference over the
  /// norm, and rows without a key are exactly 0.
  void check(const std::vector<Sequence> &sequences, int64_t paddedRows = 0);

  AttentionConfig config;

private:
  std::shared_ptr<CompiledKernels> kernels;
};

} // namespace prefill_test

#endif // PREFILL_TEST_UNIT_ATTENTION_ATTENTIONCASE_H
