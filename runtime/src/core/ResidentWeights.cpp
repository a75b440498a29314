#include "core/ResidentWeights.h"
#include "core/WeightPacking.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <cstring>

using namespace prefill;
using namespace prefill::rt;

namespace {

/// Progress is reported about every so many bytes.
constexpr int64_t progressBytes = int64_t(32) << 20;

} // namespace

Result<void> ResidentWeights::allocate() {
  const module::Module &file = owner.file();
  const Placement &placement = owner.device().threads().placement();
  for (const module::Weight *weight : *file.weights()) {
    uint64_t bytes = 0;
    if (weight->resident()) {
      bytes = byteSize(weight->dtype());
      for (int64_t extent : *weight->shape())
        bytes *= extent;
    }
    Result<Allocation> tensor = allocator.allocate(
        MemoryClass::weights, bytes, "weight " + quote(weight->name()->str()));
    if (!tensor)
      return tensor.takeError();
    // What is smaller shares its pages with other things and fits into caches.
    if (bytes >= Allocation::ownPagesBytes)
      placement.placeShares(tensor->data(), bytes);
    tensors.push_back(std::move(*tensor));
    pointers.push_back(tensors.back().data());
    residentBytes += bytes;
  }
  return {};
}

Result<std::unique_ptr<ResidentWeights>>
ResidentWeights::load(const LoadedModule &module, const TensorSource &source,
                      const Progress &progress) {
  const module::Module &file = module.file();
  Result<WeightProgram> program = WeightProgram::create(file, source);
  if (!program)
    return program.takeError();

  std::unique_ptr<ResidentWeights> loaded(new ResidentWeights(module));
  if (Result<void> ok = loaded->allocate(); !ok)
    return ok.takeError();
  ThreadPool &threads = module.device().threads();
  constexpr uint64_t scratchBytes = WeightPacking::scratchBytes();
  uint64_t total = loaded->residentBytes;
  Result<Allocation> scratch = loaded->allocator.allocate(
      MemoryClass::temporaries, scratchBytes * threads.size(),
      "loading weights");
  if (!scratch)
    return scratch.takeError();

  uint64_t done = 0;
  if (progress)
    progress("pack", 0, total);
  for (uint32_t i = 0; i < file.weights()->size(); ++i) {
    if (!file.weights()->Get(i)->resident())
      continue;
    WeightPacking writer(file, *program, i, loaded->tensors[i].data());
    int64_t slice = std::max<int64_t>(1, progressBytes / writer.unitBytes());
    for (int64_t first = 0; first < writer.units(); first += slice) {
      int64_t count = std::min(slice, writer.units() - first);
      threads.run(count, [&](int thread, int64_t begin, int64_t end) {
        std::byte *own = scratch->data() + thread * scratchBytes;
        for (int64_t unit = begin; unit < end; ++unit)
          writer.write(first + unit, own);
      });
      done += count * writer.unitBytes();
      if (progress)
        progress("pack", done, total);
    }
  }
  return loaded;
}

Result<std::unique_ptr<ResidentWeights>>
ResidentWeights::map(const LoadedModule &module, WeightsCacheFile file,
                     const Progress &progress) {
  std::unique_ptr<ResidentWeights> loaded(new ResidentWeights(module));
  const WeightsCacheLayout &layout = file.layout();
  if (module.device().threads().placement().numShares() > 1) {
    if (Result<void> ok = loaded->allocate(); !ok)
      return ok.takeError();
    loaded->copyFrom(file, progress);
    return loaded;
  }
  loaded->residentBytes = layout.tensorBytes;
  loaded->pointers.resize(module.file().weights()->size());
  for (const WeightsCacheLayout::Place &place : layout.places)
    loaded->pointers[place.weight] = file.data(place);
  if (progress)
    progress("map", layout.tensorBytes, layout.tensorBytes);
  loaded->mapping = std::move(file); // the addresses stay
  return loaded;
}

void ResidentWeights::copyFrom(const WeightsCacheFile &file,
                               const Progress &progress) {
  constexpr uint64_t piece = weightsCachePiece;
  uint64_t done = 0;
  for (const WeightsCacheLayout::Place &place : file.layout().places) {
    std::byte *target = tensors[place.weight].data();
    owner.device().threads().run(
        static_cast<int64_t>((place.bytes + piece - 1) / piece),
        [&](int, int64_t begin, int64_t end) {
          uint64_t first = static_cast<uint64_t>(begin) * piece,
                   last = std::min(place.bytes,
                                   static_cast<uint64_t>(end) * piece);
          std::memcpy(target + first, file.data(place) + first, last - first);
        });
    done += place.bytes;
    if (progress)
      progress("map", done, residentBytes);
  }
}

int64_t ResidentWeights::damagedWeight() const {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].guardIntact())
      return static_cast<int64_t>(i);
  return -1;
}
