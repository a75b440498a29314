// The weight transform program of a module, evaluated row by row.
#ifndef PREFILL_RUNTIME_CORE_WEIGHTPROGRAM_H
#define PREFILL_RUNTIME_CORE_WEIGHTPROGRAM_H

#include "core/ModuleFile.h"
#include "core/RowQuantization.h"
#include "core/TensorSource.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace prefill::rt {

/// Evaluates any row of any weight on demand, in f32, straight from the source
/// tensors. No intermediate tensor ever exists, so loading needs next to no
/// memory beyond the result, and rounding happens once, where the result is
/// stored. Thread safe after create().
class WeightProgram {
public:
  /// Resolves every tensor that is read. `plan` must be verified; it
  /// and `source` must outlive the program.
  static Result<WeightProgram> create(const module::Plan &plan,
                                      const TensorSource &source);

  /// Elements of one row: the product of the extents behind the first.
  static int64_t rowLength(const module::Weight &weight);

  /// f32[count]: numbers [begin, begin + count) of a row. Not for packed
  /// weights, which are no rows.
  void row(uint32_t weight, int64_t row, int64_t begin, int64_t count,
           float *out) const;

  /// How a row of a matrix of floats becomes integers. Takes a look at the
  /// whole row: who wants it in pieces asks once.
  RowQuantization quantization(uint32_t weight, int64_t row) const;

private:
  explicit WeightProgram(const module::Plan &plan) : plan(&plan) {}

  const module::Plan *plan;
  std::vector<std::unique_ptr<TensorReader>> readers; ///< of checkpoint weights
  std::vector<std::vector<float>> gains;              ///< of scaled weights
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_WEIGHTPROGRAM_H
