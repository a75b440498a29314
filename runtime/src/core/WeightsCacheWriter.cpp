// Writing the file of packed weights: complete or not at all.
#include "core/WeightsCacheFile.h"
#include "prefill/checkpoint/NamelessFile.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <cstring>
#include <memory>

using namespace prefill;
using namespace prefill::rt;

namespace {

/// Collects bytes at ascending offsets, gaps being zeros, and writes them in
/// whole pieces of weightsCachePiece at multiples of it.
class PieceWriter {
public:
  explicit PieceWriter(NamelessFile &file)
      : file(file), piece(new std::byte[weightsCachePiece]) {}

  Result<void> put(const std::byte *data, uint64_t size, uint64_t offset) {
    if (Result<void> ok = moveTo(offset); !ok)
      return ok;
    while (size > 0) {
      if (filled == 0 && size >= weightsCachePiece) {
        // Straight from the weights; not in one call, so that memory which the
        // system has to find for the page cache is asked for bit by bit.
        uint64_t count = std::min(size, 4 * weightsCachePiece) /
                         weightsCachePiece * weightsCachePiece;
        if (Result<void> ok = file.writeAt(data, count, start); !ok)
          return ok;
        start += count;
        data += count;
        size -= count;
        continue;
      }
      uint64_t count = std::min(size, weightsCachePiece - filled);
      std::memcpy(piece.get() + filled, data, count);
      filled += count;
      data += count;
      size -= count;
      if (filled == weightsCachePiece)
        if (Result<void> ok = flush(); !ok)
          return ok;
    }
    return {};
  }

  /// Zeros up to the end of the file.
  Result<void> finish(uint64_t fileBytes) {
    if (Result<void> ok = moveTo(fileBytes); !ok)
      return ok;
    return filled ? flush() : Result<void>();
  }

private:
  Result<void> moveTo(uint64_t offset) {
    while (start + filled < offset) {
      uint64_t count =
          std::min(offset - start - filled, weightsCachePiece - filled);
      std::memset(piece.get() + filled, 0, count);
      filled += count;
      if (filled == weightsCachePiece)
        if (Result<void> ok = flush(); !ok)
          return ok;
    }
    return {};
  }
  Result<void> flush() {
    Result<void> ok = file.writeAt(piece.get(), filled, start);
    start += filled;
    filled = 0;
    return ok;
  }

  NamelessFile &file;
  std::unique_ptr<std::byte[]> piece;
  uint64_t start = 0;  ///< where the piece begins
  uint64_t filled = 0; ///< bytes in it
};

} // namespace

Result<void> prefill::rt::writeWeightsCache(
    const std::string &path, const module::Plan &plan,
    const WeightsCacheKey &key,
    const std::function<Result<const std::byte *>(uint32_t)> &tensor,
    const std::function<void(uint64_t done)> &progress) {
  WeightsCacheLayout layout(plan);
  NamelessFile output(path);
  if (Result<void> ok = output.create(layout.fileBytes); !ok)
    return ok;

  // The header holds the checksums, so it is written last; its piece, which the
  // small weights share with it, is written twice.
  std::vector<uint64_t> checksums(layout.places.size());
  WeightsCacheHeader header = {};
  std::memcpy(header.magic, weightsCacheMagic, sizeof header.magic);
  header.version = weightsCacheVersion;
  header.numTensors = static_cast<uint32_t>(checksums.size());
  header.key = key;
  header.fileBytes = layout.fileBytes;

  uint64_t done = 0;
  PieceWriter writer(output);
  for (size_t i = 0; i < layout.places.size(); ++i) {
    const WeightsCacheLayout::Place &place = layout.places[i];
    Result<const std::byte *> data = tensor(place.weight);
    if (!data)
      return data.takeError();
    checksums[i] = contentHash(*data, place.bytes);
    if (Result<void> ok = writer.put(*data, place.bytes, place.offset); !ok)
      return ok;
    done += place.bytes;
    if (progress)
      progress(done);
  }
  if (Result<void> ok = writer.finish(layout.fileBytes); !ok)
    return ok;
  header.checksum = weightsCacheChecksum(header, checksums);
  if (Result<void> ok = output.writeAt(
          reinterpret_cast<const std::byte *>(&header), sizeof header, 0);
      !ok)
    return ok;
  if (Result<void> ok =
          output.writeAt(reinterpret_cast<const std::byte *>(checksums.data()),
                         checksums.size() * sizeof(uint64_t), sizeof header);
      !ok)
    return ok;
  return output.commit(/*durable=*/true);
}
