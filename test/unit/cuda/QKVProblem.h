//===- QKVProblem.h - a QKV projection with its epilogue --------*- C++ -*-===//
#ifndef PREFILL_TEST_UNIT_CUDA_QKVPROBLEM_H
#define PREFILL_TEST_UNIT_CUDA_QKVPROBLEM_H

#include "CudaKernel.h"
#include "RopeReference.h"

namespace prefill_test {

struct QKVCase {
  std::string name;
  int64_t queryHeads, kvHeads, headDim;
  int64_t blockM, blockN;
  Rope rope;
  bool qkNorm = false, bias = false, rowScale = true;
  std::string layout = "contiguous";
  /// The last two are padding.
  int64_t rows = 21;
  int64_t hidden = 32;
  /// Positions lie from here on.
  int64_t firstPosition = 0;
};

/// Row scale, bias, QK-norm, RoPE and the store into the cache, against plain
/// loops.
class QKVProblem {
public:
  QKVProblem(const QKVCase &c, Element element) : c(c), type(element) {}

  /// A module of level config.
  std::string text() const;
  /// Runs with each of the seeds; NaN in all that must not matter, a slot of -1
  /// and padded rows among the rest.
  void check(CudaKernel &compiled, const std::vector<uint64_t> &seeds) const;

private:
  static constexpr int64_t kBlockSize = 16;
  static constexpr int64_t kPartials = 3;
  static constexpr double kEps = 1e-5, kScale = 0.3;

  int64_t queryColumns() const { return c.queryHeads * c.headDim; }
  int64_t kvColumns() const { return c.kvHeads * c.headDim; }
  int64_t columns() const { return queryColumns() + 2 * kvColumns(); }
  /// More than rows, and prime to the 13 between the slots of two rows.
  int64_t slots() const { return (c.rows / 64 + 1) * 64; }
  int64_t positions() const { return c.firstPosition + slots(); }
  int64_t blockSize() const {
    return c.layout == "paged_nhd" ? kBlockSize : slots();
  }
  // Strides in elements, and where V starts in the one allocation of K and V.
  int64_t blockStride() const { return 2 * kBlockSize * kvColumns(); }
  int64_t tokenStride() const {
    return c.layout == "head_major" ? c.headDim : kvColumns();
  }
  int64_t headStride() const {
    return c.layout == "head_major" ? slots() * c.headDim : c.headDim;
  }
  int64_t valueStart() const { return blockSize() * kvColumns(); }
  int64_t cacheElements() const { return 2 * slots() * kvColumns(); }
  int64_t element(int64_t slot, int64_t head, int64_t d) const {
    return slot / blockSize() * blockStride() + head * headStride() +
           slot % blockSize() * tokenStride() + d;
  }

  QKVCase c;
  Element type;
};

} // namespace prefill_test

#endif // PREFILL_TEST_UNIT_CUDA_QKVPROBLEM_H
