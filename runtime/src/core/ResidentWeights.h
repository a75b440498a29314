// The weights as kernels read them.
#ifndef PREFILL_RUNTIME_CORE_RESIDENTWEIGHTS_H
#define PREFILL_RUNTIME_CORE_RESIDENTWEIGHTS_H

#include "core/LoadedModule.h"
#include "core/Memory.h"
#include "core/WeightProgram.h"

#include <functional>
#include <memory>
#include <vector>

namespace prefill::rt {

class ResidentWeights {
public:
  /// `phase` is "pack"; bytes of resident tensors done and in total.
  using Progress =
      std::function<void(const char *phase, uint64_t done, uint64_t total)>;

  /// Runs the module's weight program over `source` on the device's threads.
  /// All memory is asked for before the first tensor is read.
  static Result<std::unique_ptr<ResidentWeights>>
  load(const LoadedModule &module, const TensorSource &source,
       const Progress &progress);

  const LoadedModule &module() const { return owner; }
  /// nullptr for weights that are not resident.
  const std::byte *data(uint32_t weight) const {
    return tensors[weight].data();
  }
  uint64_t bytes() const { return allocator.current(MemoryClass::weights); }
  /// The index of a weight behind whose end somebody wrote, or -1.
  int64_t damagedWeight() const;

private:
  explicit ResidentWeights(const LoadedModule &module) : owner(module) {}

  const LoadedModule &owner;
  Allocator allocator;
  std::vector<Allocation> tensors; ///< indexed as the module's weights
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_RESIDENTWEIGHTS_H
