#include "core/WeightsCache.h"
#include "core/WeightsCachePlaces.h"

using namespace prefill;
using namespace prefill::rt;

Result<WeightsCache> WeightsCache::create(const LoadedModule &module,
                                          const CheckpointSource &source,
                                          const std::string &place) {
  std::vector<std::string> places = {place};
  if (place.empty()) {
    if (module.path().empty())
      return Error{ErrorCode::invalidArgument,
                   "the module was loaded from memory, so there is no place "
                   "beside it: expected the name of a cache file"};
    places = weightsCachePlaces(module.path(),
                                module.plan().target()->string_view());
  }
  Result<WeightsCacheKey> key =
      WeightsCacheKey::create(module.plan(), source.path(), source.tensors());
  if (!key)
    return key.takeError();
  return WeightsCache(module, *key, std::move(places), !place.empty());
}

Result<std::unique_ptr<ResidentWeights>>
WeightsCache::load(bool verify, const ResidentWeights::Progress &progress) {
  for (const std::string &place : places) {
    Result<std::optional<WeightsCacheFile>> file =
        WeightsCacheFile::open(place, module->plan(), key);
    Result<void> intact;
    if (file && *file && verify) {
      uint64_t total = (*file)->layout().tensorBytes;
      intact = (*file)->verify(module->plan(), module->device().threads(),
                               [&](uint64_t done) {
                                 if (progress)
                                   progress("verify", done, total);
                               });
    }
    if (file && *file && intact) {
      used = place;
      return ResidentWeights::map(*module, std::move(**file), progress);
    }
    // Who names a file by mistake does not want it replaced.
    if (!file && named && file.error().code == ErrorCode::invalidArgument)
      return Error{ErrorCode::invalidArgument,
                   file.error().message +
                       ", expected one, or a name that is free"};
    if (!file || !intact)
      reasons += (reasons.empty() ? "" : "; ") +
                 (file ? intact.error() : file.error()).message;
  }
  return std::unique_ptr<ResidentWeights>();
}

Result<void> WeightsCache::write(const ResidentWeights &weights,
                                 const ResidentWeights::Progress &progress) {
  uint64_t total = weights.bytes();
  std::vector<std::byte> copy; // of what lies on a device
  Result<void> written = Error{ErrorCode::io, "there is no place for a cache"};
  for (const std::string &place : places) {
    if (&place != &places.front())
      makeWeightsCacheDirectory(place);
    written = writeWeightsCache(
        place, module->plan(), key,
        [&](uint32_t weight) { return weights.read(weight, copy); },
        [&](uint64_t done) {
          if (progress)
            progress("save", done, total);
        });
    if (written) {
      used = place;
      return {};
    }
  }
  return written;
}
