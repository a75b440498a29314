// Launches of a plan that are plain matrix products.
#ifndef PREFILL_RUNTIME_CUDA_PRODUCTLAUNCH_H
#define PREFILL_RUNTIME_CUDA_PRODUCTLAUNCH_H

#include "core/ModuleFile.h"
#include "cuda/BlasMatmul.h"

#include <optional>
#include <span>
#include <vector>

namespace prefill::rt::cuda {

struct ProductLaunch {
  /// m is 0: it is the call's.
  MatmulProblem problem;
  module::RowDomain rows;
  /// Which of the launch's words hold the addresses.
  size_t inputWord, weightWord, outputWord;

  MatmulOperands operands(std::span<const uint64_t> words) const {
    return {words[inputWord], words[weightWord], words[outputWord], 0};
  }
};

/// For each launch of a schedule; nullopt where it is no plain product or one
/// of types that the library is not asked for.
using ScheduleProducts = std::vector<std::optional<ProductLaunch>>;

/// For each schedule of a verified plan.
std::vector<ScheduleProducts> findProducts(const module::Plan &plan);

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_PRODUCTLAUNCH_H
