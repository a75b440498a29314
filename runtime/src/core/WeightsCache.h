// Finding and keeping the packed weights of one module and one checkpoint.
#ifndef PREFILL_RUNTIME_CORE_WEIGHTSCACHE_H
#define PREFILL_RUNTIME_CORE_WEIGHTSCACHE_H

#include "core/LoadedModule.h"
#include "core/ResidentWeights.h"
#include "core/TensorSource.h"
#include "core/WeightsCacheFile.h"

#include <memory>
#include <string>
#include <vector>

namespace prefill::rt {

class WeightsCache {
public:
  /// `place`: the file, or empty for weightsCachePlaces of the module's file.
  /// The checkpoint is identified as it is now, before anything is read: what
  /// changes while it is packed makes the next start pack again.
  static Result<WeightsCache> create(const LoadedModule &module,
                                     const CheckpointSource &source,
                                     const std::string &place);

  /// The weights in the first place that holds a file of this module and this
  /// checkpoint; nullptr when none does. With `verify` every byte is compared
  /// with its checksum. Refused: a place that was named and holds something
  /// else than packed weights.
  Result<std::unique_ptr<ResidentWeights>>
  load(bool verify, const ResidentWeights::Progress &progress);

  /// Writes the file at the first place that can be written.
  Result<void> write(const ResidentWeights &weights,
                     const ResidentWeights::Progress &progress);

  /// After load: the file that was used, "" if none; after write: the file that
  /// was written.
  const std::string &file() const { return used; }
  /// One line: which files were not used and why; "" when there was nothing to
  /// complain about.
  const std::string &rejected() const { return reasons; }

private:
  WeightsCache(const LoadedModule &module, WeightsCacheKey key,
               std::vector<std::string> places, bool named)
      : module(&module), key(key), places(std::move(places)), named(named) {}

  const LoadedModule *module;
  WeightsCacheKey key;
  std::vector<std::string> places;
  bool named; ///< by the user
  std::string used, reasons;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_WEIGHTSCACHE_H
