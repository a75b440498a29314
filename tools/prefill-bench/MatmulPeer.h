// Another library's plain matmul, run beside our GEMMs.
#ifndef PREFILL_TOOLS_PREFILLBENCH_MATMULPEER_H
#define PREFILL_TOOLS_PREFILLBENCH_MATMULPEER_H

#include "prefill/checkpoint/Result.h"

#include <cstdint>
#include <memory>
#include <string>

namespace prefill::bench {

using rt::Result;

/// oneDNN, in a library of its own (prefill-bench-onednn.so) that is loaded
/// when a row asks for it, so that this tool starts where there is no oneDNN.
class MatmulPeer {
public:
  /// C[m, n] = A[m, k] * B[k, n] in `dtype` with f32 accumulators ("int8":
  /// with those of i32, C in bf16), B in the layout that oneDNN prefers. Error:
  /// why there is none.
  static Result<std::unique_ptr<MatmulPeer>> create(const std::string &dtype,
                                                    int64_t m, int64_t n,
                                                    int64_t k, int threads);
  MatmulPeer(const MatmulPeer &) = delete;
  MatmulPeer &operator=(const MatmulPeer &) = delete;
  ~MatmulPeer();

  /// One matmul, over another copy of B each time: together the copies exceed
  /// twice the last cache, as a model's weights do. A and C stay where a model
  /// would have them.
  void run();
  /// Lets the peer's idle threads fall asleep. libgomp's spin for a moment
  /// after their work.
  void settle() const;

  /// "oneDNN 2.6.3"; empty where there is none.
  static std::string version();

  /// Of a variant, "avx512" and so on: the peer is to use nothing better.
  /// Before the first create(), which fails where the library cannot do it.
  static void limitIsa(const std::string &isa);
  /// "avx512_core_bf16": what the peer may use, in its own words.
  static std::string isa();

private:
  MatmulPeer(void *handle, int threads) : handle(handle), threads(threads) {}
  void *handle;
  int threads;
};

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_MATMULPEER_H
