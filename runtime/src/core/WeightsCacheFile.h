// Packed weights in a file beside the model: the second start maps them.
#ifndef PREFILL_RUNTIME_CORE_WEIGHTSCACHEFILE_H
#define PREFILL_RUNTIME_CORE_WEIGHTSCACHEFILE_H

#include "core/ThreadPool.h"
#include "core/WeightsCacheFormat.h"
#include "prefill/checkpoint/Result.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace prefill::rt {

/// A file whose header is complete and says that it belongs to the module and
/// the checkpoint. The tensors' bytes are not looked at: a truncated file is
/// known by its size, and hashing everything takes longer than the start that
/// the file is for (verify() does it). The mapping is read-only and shared with
/// the page cache: it costs no memory of the process's own, and two processes
/// share it. A file in place is never written again, only replaced.
class WeightsCacheFile {
public:
  /// Nothing when there is no such file. Refused, with the reason after the
  /// quoted path: what cannot be read, is no regular file, has another size
  /// than the module's weights need, a damaged header, or was made from other
  /// weights or for another weight program; with ErrorCode::invalidArgument
  /// what is something else altogether. `path` may be a symbolic link.
  static Result<std::optional<WeightsCacheFile>>
  open(const std::string &path, const module::Plan &plan,
       const WeightsCacheKey &key);

  WeightsCacheFile(WeightsCacheFile &&other) noexcept;
  WeightsCacheFile &operator=(WeightsCacheFile &&other) noexcept;
  WeightsCacheFile(const WeightsCacheFile &) = delete;
  WeightsCacheFile &operator=(const WeightsCacheFile &) = delete;
  ~WeightsCacheFile();

  const WeightsCacheLayout &layout() const { return places; }
  const std::string &path() const { return name; }
  /// 64-byte aligned, for an element of layout().places.
  const std::byte *data(const WeightsCacheLayout::Place &place) const {
    return bytes + place.offset;
  }

  /// Compares every tensor with its checksum, naming the first that differs.
  /// `progress` gets bytes done.
  Result<void> verify(const module::Plan &plan, ThreadPool &threads,
                      const std::function<void(uint64_t done)> &progress) const;

private:
  WeightsCacheFile(std::string path, const module::Plan &plan)
      : name(std::move(path)), places(plan) {}
  Result<void> map(int descriptor, const WeightsCacheKey &key);
  Error refuse(const std::string &why) const;

  std::string name;
  WeightsCacheLayout places;
  std::vector<uint64_t> checksums;
  const std::byte *bytes = nullptr;
};

/// Writes the file, or leaves what is there: the data go to a nameless
/// temporary file in the same directory, are flushed to the disk and only then
/// take the name. A symbolic link stays one; what it names is replaced.
/// Concurrent writers do not disturb each other, the last one's file stays.
/// `tensor` gives the bytes of a weight until it is asked for the next one;
/// `progress` gets bytes done.
Result<void> writeWeightsCache(
    const std::string &path, const module::Plan &plan,
    const WeightsCacheKey &key,
    const std::function<Result<const std::byte *>(uint32_t)> &tensor,
    const std::function<void(uint64_t done)> &progress);

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_WEIGHTSCACHEFILE_H
