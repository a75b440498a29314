// cuBLASLt, opened at run time: where it is absent our own kernels do its part.
#ifndef PREFILL_RUNTIME_CUDA_BLASAPI_H
#define PREFILL_RUNTIME_CUDA_BLASAPI_H

#include "cuda/BlasAbi.h"
#include "prefill/checkpoint/Result.h"

#include <memory>
#include <string>
#include <vector>

namespace prefill::rt::cuda {

/// The entry points of BlasFunctions.def.
struct BlasApi {
  /// The newest first.
  static std::vector<std::string> defaultLibraries();

  /// Whether plans may leave products to the library: PREFILL_CUBLASLT is `on`
  /// or not set, or `off`.
  static Result<bool> allowed();

  /// Opens the first of the libraries that is there. It stays loaded.
  static Result<std::shared_ptr<const BlasApi>>
  load(const std::vector<std::string> &libraries = defaultLibraries());

#define PREFILL_BLAS_FUNCTION(member, symbol, result, parameters)              \
  result(*member) parameters = nullptr;
#include "cuda/BlasFunctions.def"

  /// 130100 for 13.1.0.
  size_t version = 0;

  /// "<what>: CUBLAS_STATUS_NOT_SUPPORTED".
  Error error(cublasStatus_t status, const std::string &what) const;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_BLASAPI_H
