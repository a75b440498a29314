// The weights as kernels read them.
#ifndef PREFILL_RUNTIME_CORE_RESIDENTWEIGHTS_H
#define PREFILL_RUNTIME_CORE_RESIDENTWEIGHTS_H

#include "core/LoadedModule.h"
#include "core/Memory.h"
#include "core/WeightProgram.h"
#include "core/WeightsCacheFile.h"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace prefill::rt {

class ResidentWeights {
public:
  /// `phase` is "pack" or "map"; bytes of resident tensors done and in total.
  using Progress =
      std::function<void(const char *phase, uint64_t done, uint64_t total)>;

  /// Runs the module's weight program over `source` on the device's threads.
  /// All memory is asked for before the first tensor is read.
  static Result<std::unique_ptr<ResidentWeights>>
  load(const LoadedModule &module, const TensorSource &source,
       const Progress &progress);
  /// Takes the weights from a file: with one NUMA node by mapping it, so that
  /// nothing is read before a kernel does; with more by copying each node's
  /// share into its memory, since the page cache lies where it happens to.
  static Result<std::unique_ptr<ResidentWeights>>
  map(const LoadedModule &module, WeightsCacheFile file,
      const Progress &progress);

  const LoadedModule &module() const { return owner; }
  /// nullptr for weights that are not resident.
  const std::byte *data(uint32_t weight) const { return pointers[weight]; }
  uint64_t bytes() const { return residentBytes; }
  /// The index of a weight behind whose end somebody wrote, or -1. Always -1
  /// for mapped weights, which are read-only.
  int64_t damagedWeight() const;

private:
  explicit ResidentWeights(const LoadedModule &module) : owner(module) {}
  /// All memory of the weights, none of it touched.
  Result<void> allocate();
  void copyFrom(const WeightsCacheFile &file, const Progress &progress);

  const LoadedModule &owner;
  Allocator allocator;
  uint64_t residentBytes = 0;
  // Indexed as the module's weights; owned by either of the two below.
  std::vector<const std::byte *> pointers;
  std::vector<Allocation> tensors;
  std::optional<WeightsCacheFile> mapping;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_RESIDENTWEIGHTS_H
