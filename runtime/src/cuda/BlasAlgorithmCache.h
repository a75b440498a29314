// Which of cuBLASLt's algorithms was chosen for a matrix product, kept in a
// file so that the next start neither searches nor measures.
#ifndef PREFILL_RUNTIME_CUDA_BLASALGORITHMCACHE_H
#define PREFILL_RUNTIME_CUDA_BLASALGORITHMCACHE_H

#include "cuda/BlasAbi.h"
#include "prefill/checkpoint/Result.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace prefill::rt::cuda {

/// Thread safe.
class BlasAlgorithmCache {
public:
  struct Entry {
    cublasLtMatmulAlgo_t algorithm;
    bool measured; ///< against others, not only the library's first guess
  };

  /// prefill/cublaslt.json in $XDG_CACHE_HOME, else in $HOME/.cache; empty when
  /// neither variable holds an absolute path.
  static std::string defaultPath();

  /// A file that is absent is empty. One that is damaged is as well, and
  /// `warning` says so. With an empty path nothing is kept.
  static BlasAlgorithmCache read(const std::string &path, std::string &warning);

  /// The key names the GPU, the driver, the library and the problem.
  std::optional<Entry> find(const std::string &key) const;
  /// Written at once, under another name first; entries that somebody else has
  /// written meanwhile are kept.
  Result<void> add(const std::string &key, const Entry &entry);

private:
  std::string path;
  std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();
  std::map<std::string, Entry> entries;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_BLASALGORITHMCACHE_H
