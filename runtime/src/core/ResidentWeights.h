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

  /// Runs the plan's weight program over `source` on the device's threads. All
  /// memory is asked for before the first tensor is read. Where the device has
  /// memory of its own, a piece at a time is packed here and copied there.
  static Result<std::unique_ptr<ResidentWeights>>
  load(const LoadedModule &module, const TensorSource &source,
       const Progress &progress);
  /// Memory for the weights without any values (Backend::countsOnly).
  static Result<std::unique_ptr<ResidentWeights>>
  reserve(const LoadedModule &module);
  /// The memory of another module's weights, which outlive these: for harnesses
  /// that compare modules of one model. An Error names the weight in which the
  /// two differ, or says that they are on different devices.
  static Result<std::unique_ptr<ResidentWeights>>
  share(const LoadedModule &module, const ResidentWeights &other);
  /// Takes the weights from a file: with one NUMA node by mapping it, so that
  /// nothing is read before a kernel does; with more by copying each node's
  /// share into its memory, since the page cache lies where it happens to, and
  /// likewise into the memory of a device.
  static Result<std::unique_ptr<ResidentWeights>>
  map(const LoadedModule &module, WeightsCacheFile file,
      const Progress &progress);

  const LoadedModule &module() const { return owner; }
  /// 0 for weights that are not resident.
  DeviceAddress address(uint32_t weight) const { return addresses[weight]; }
  /// Host memory only; nullptr for weights that are not resident.
  const std::byte *data(uint32_t weight) const {
    return static_cast<const std::byte *>(hostPointer(addresses[weight]));
  }
  /// The bytes of a resident weight, through `copy` where they lie on a device.
  Result<const std::byte *> read(uint32_t weight,
                                 std::vector<std::byte> &copy) const;
  uint64_t bytes() const { return residentBytes; }
  /// The index of a weight behind whose end somebody wrote, or -1. Always -1
  /// for mapped weights, which are read-only.
  int64_t damagedWeight() const;

private:
  explicit ResidentWeights(const LoadedModule &module)
      : owner(module), allocator(module.device().backend().memory()) {}
  bool onHost() const { return allocator.memory().isHost(); }
  /// All memory of the weights, none of it touched.
  Result<void> allocate();
  Result<void> pack(const WeightProgram &program, const Progress &progress);
  Result<void> copyFrom(const WeightsCacheFile &file, const Progress &progress);

  const LoadedModule &owner;
  Allocator allocator;
  uint64_t residentBytes = 0;
  // Indexed as the plan's weights; owned by either of the two below.
  std::vector<DeviceAddress> addresses;
  std::vector<Allocation> tensors;
  std::optional<WeightsCacheFile> mapping;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_RESIDENTWEIGHTS_H
