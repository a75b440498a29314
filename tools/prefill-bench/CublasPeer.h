// cuBLASLt's plain matrix product as a peer of our fused ones.
#ifndef PREFILL_TOOLS_PREFILLBENCH_CUBLASPEER_H
#define PREFILL_TOOLS_PREFILLBENCH_CUBLASPEER_H

#include "cuda/BlasMatmul.h"
#include "cuda/CudaBackend.h"
#include "cuda/DeviceBuffer.h"

#include <memory>

namespace prefill::bench {

using rt::Result;

class CublasPeer {
public:
  /// An Error where the library is absent. `algorithms`: the file in which the
  /// fastest algorithms are kept; empty: none.
  static Result<std::unique_ptr<CublasPeer>>
  create(const rt::cuda::CudaDevice &device,
         const std::string &algorithms = "");

  /// The median of `rounds` products in microseconds, on random values, with
  /// the fastest algorithm. Weights are rotated, so that each product finds
  /// them in memory and not in the last cache.
  Result<double> measure(const rt::cuda::MatmulProblem &problem, int rounds);

private:
  explicit CublasPeer(rt::cuda::CommandStream commands)
      : commands(std::move(commands)) {}

  rt::cuda::CommandStream commands;
  rt::cuda::DeviceBuffer workspace;
  std::unique_ptr<rt::cuda::BlasAlgorithmCache> algorithms;
  std::unique_ptr<rt::cuda::BlasMatmul> matmul;
};

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_CUBLASPEER_H
