// Matrix products by cuBLASLt.
#ifndef PREFILL_RUNTIME_CUDA_BLASMATMUL_H
#define PREFILL_RUNTIME_CUDA_BLASMATMUL_H

#include "cuda/BlasAlgorithmCache.h"
#include "cuda/BlasApi.h"
#include "cuda/CommandStream.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace prefill::rt::cuda {

/// out[m, n] = in[m, k] * weight[n, k]^T (+ bias[n] in every row): all of them
/// row-major without gaps, sums in f32.
struct MatmulProblem {
  int64_t m, n, k;
  cudaDataType_t inputType;  ///< of in and weight
  cudaDataType_t outputType; ///< of out and bias
  bool bias;

  auto operator<=>(const MatmulProblem &) const = default;
};

/// "512x4096x1024 bf16 -> f32".
std::string describe(const MatmulProblem &problem);

struct MatmulOperands {
  CUdeviceptr in, weight, out;
  CUdeviceptr bias; ///< 0 without one
};

/// Products on one stream, which outlives it. The algorithm of a problem is the
/// one in the cache, else the library's first guess; tune() measures.
class BlasMatmul {
public:
  /// What NVIDIA recommends for its largest GPUs.
  static constexpr uint64_t workspaceBytes = uint64_t(32) << 20;

  /// `workspace` is workspaceBytes of the device's memory, for this object
  /// alone.
  static Result<std::unique_ptr<BlasMatmul>>
  create(std::shared_ptr<const BlasApi> api, const CommandStream &commands,
         BlasAlgorithmCache &cache, CUdeviceptr workspace);
  BlasMatmul(const BlasMatmul &) = delete;
  BlasMatmul &operator=(const BlasMatmul &) = delete;
  ~BlasMatmul();

  /// prepare() was asked about it before.
  bool knows(const MatmulProblem &problem) const {
    return prepared.contains(problem) || refused.contains(problem);
  }
  /// An Error, also for later, where the library has no algorithm. Takes no
  /// memory and enqueues nothing.
  Result<void> prepare(const MatmulProblem &problem);
  /// prepare() came first and went well. May be captured in a graph.
  Result<void> enqueue(const MatmulProblem &problem,
                       const MatmulOperands &operands);

  /// Runs the library's candidates on the operands, whose `out` loses what it
  /// held, and keeps the fastest for this and later processes. Returns its
  /// time.
  Result<float> tune(const MatmulProblem &problem,
                     const MatmulOperands &operands);

private:
  struct Prepared;
  BlasMatmul(std::shared_ptr<const BlasApi> api, const CommandStream &commands,
             BlasAlgorithmCache &cache, CUdeviceptr workspace);

  std::string keyOf(const MatmulProblem &problem) const;
  Result<std::unique_ptr<Prepared>> describeToLibrary(const MatmulProblem &);
  Result<std::vector<cublasLtMatmulHeuristicResult_t>>
  candidates(const MatmulProblem &problem, const Prepared &prepared, int count);
  Result<void> enqueue(const Prepared &prepared,
                       const cublasLtMatmulAlgo_t &algorithm,
                       const MatmulOperands &operands);
  /// The median of a few runs.
  Result<float> measure(const Prepared &prepared,
                        const cublasLtMatmulAlgo_t &algorithm,
                        const MatmulOperands &operands);

  std::shared_ptr<const BlasApi> api;
  const CommandStream &commands;
  BlasAlgorithmCache &cache;
  cublasLtHandle_t handle = nullptr;
  CUdeviceptr workspace;
  std::map<MatmulProblem, std::unique_ptr<Prepared>> prepared;
  std::map<MatmulProblem, std::string> refused;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_BLASMATMUL_H
