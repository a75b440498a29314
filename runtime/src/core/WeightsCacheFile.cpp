#include "core/WeightsCacheFile.h"
#include "prefill/checkpoint/Quote.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace prefill;
using namespace prefill::rt;

Error WeightsCacheFile::refuse(const std::string &why) const {
  return Error{ErrorCode::invalidWeights, quote(name) + " " + why};
}

Result<std::optional<WeightsCacheFile>>
WeightsCacheFile::open(const std::string &path, const module::Plan &plan,
                       const WeightsCacheKey &key) {
  // O_NONBLOCK: a pipe must not hang here.
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      return std::optional<WeightsCacheFile>();
    return Error{ErrorCode::io,
                 quote(path) + " cannot be opened: " + std::strerror(errno)};
  }
  WeightsCacheFile cache(path, plan);
  Result<void> mapped = cache.map(descriptor, key);
  ::close(descriptor);
  if (!mapped)
    return mapped.takeError();
  return std::optional<WeightsCacheFile>(std::move(cache));
}

Result<void> WeightsCacheFile::map(int descriptor, const WeightsCacheKey &key) {
  struct stat status;
  if (::fstat(descriptor, &status) != 0)
    return refuse(std::string("cannot be read: ") + std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    return refuse("is not a regular file");
  uint64_t size = static_cast<uint64_t>(status.st_size);

  WeightsCacheHeader header;
  auto readAt = [&](void *out, uint64_t bytes, uint64_t offset) {
    return ::pread(descriptor, out, bytes, static_cast<off_t>(offset)) ==
           static_cast<ssize_t>(bytes);
  };
  if (size == 0)
    return refuse("is empty");
  if (size < sizeof header.magic ||
      !readAt(header.magic, sizeof header.magic, 0) ||
      std::memcmp(header.magic, weightsCacheMagic, sizeof header.magic) != 0) {
    Error foreign = refuse("is not a file of packed weights");
    foreign.code = ErrorCode::invalidArgument;
    return foreign;
  }
  if (size < sizeof header || !readAt(&header, sizeof header, 0))
    return refuse("is truncated: it has " + std::to_string(size) + " bytes");
  if (header.version != weightsCacheVersion)
    return refuse("has version " + std::to_string(header.version) +
                  ", expected " + std::to_string(weightsCacheVersion));
  // Before any number of the header is believed. The count of checksums must
  // fit the file; with a damaged count the checksum cannot be right.
  if (header.numTensors > (size - sizeof header) / sizeof(uint64_t))
    return refuse("is truncated or damaged: its header reaches past the end");
  checksums.resize(header.numTensors);
  if (!readAt(checksums.data(), checksums.size() * sizeof(uint64_t),
              sizeof header))
    return refuse("cannot be read");
  if (weightsCacheChecksum(header, checksums) != header.checksum)
    return refuse("is damaged: the checksum of its header is wrong");
  if (header.key.program != key.program)
    return refuse("was made for another weight program");
  if (header.key.checkpoint != key.checkpoint)
    return refuse("was made from another checkpoint, or the checkpoint has "
                  "changed since");
  if (header.numTensors != places.places.size() ||
      header.fileBytes != places.fileBytes || size != header.fileBytes)
    return refuse("has " + std::to_string(size) + " bytes, expected " +
                  std::to_string(places.fileBytes));

  void *mapping = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapping == MAP_FAILED)
    return refuse(std::string("cannot be mapped: ") + std::strerror(errno));
#ifdef MADV_HUGEPAGE
  // When the file is not in the page cache, it comes in as large folios.
  ::madvise(mapping, size, MADV_HUGEPAGE);
#endif
  bytes = static_cast<const std::byte *>(mapping);
  return {};
}

WeightsCacheFile::WeightsCacheFile(WeightsCacheFile &&other) noexcept
    : name(std::move(other.name)), places(std::move(other.places)),
      checksums(std::move(other.checksums)),
      bytes(std::exchange(other.bytes, nullptr)) {}

WeightsCacheFile &
WeightsCacheFile::operator=(WeightsCacheFile &&other) noexcept {
  std::swap(name, other.name);
  std::swap(places, other.places);
  std::swap(checksums, other.checksums);
  std::swap(bytes, other.bytes);
  return *this;
}

WeightsCacheFile::~WeightsCacheFile() {
  if (bytes)
    ::munmap(const_cast<std::byte *>(bytes), places.fileBytes);
}

Result<void> WeightsCacheFile::verify(
    const module::Plan &plan, ThreadPool &threads,
    const std::function<void(uint64_t done)> &progress) const {
  uint64_t done = 0;
  // A few tensors at a time: the caller's thread reports between launches.
  int64_t slice = threads.size();
  std::atomic<int64_t> damaged{INT64_MAX};
  for (int64_t first = 0; first < int64_t(places.places.size());
       first += slice) {
    int64_t count =
        std::min<int64_t>(slice, int64_t(places.places.size()) - first);
    threads.run(count, [&](int, int64_t begin, int64_t end) {
      for (int64_t i = first + begin; i < first + end; ++i)
        if (contentHash(data(places.places[i]), places.places[i].bytes) !=
            checksums[i]) {
          int64_t before = damaged;
          while (i < before && !damaged.compare_exchange_weak(before, i))
            ;
        }
    });
    if (damaged != INT64_MAX)
      return refuse("is damaged: the checksum of weight " +
                    quote(plan.weights()
                              ->Get(places.places[damaged].weight)
                              ->name()
                              ->str()) +
                    " is wrong");
    for (int64_t i = first; i < first + count; ++i)
      done += places.places[i].bytes;
    if (progress)
      progress(done);
  }
  return {};
}
