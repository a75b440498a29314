#include "core/ResidentWeights.h"
#include "core/WeightPacking.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>

using namespace prefill;
using namespace prefill::rt;

namespace {

/// Progress is reported about every so many bytes.
constexpr int64_t progressBytes = int64_t(32) << 20;

} // namespace

Result<std::unique_ptr<ResidentWeights>>
ResidentWeights::load(const LoadedModule &module, const TensorSource &source,
                      const Progress &progress) {
  const module::Module &file = module.file();
  Result<WeightProgram> program = WeightProgram::create(file, source);
  if (!program)
    return program.takeError();

  std::unique_ptr<ResidentWeights> loaded(new ResidentWeights(module));
  ThreadPool &threads = module.device().threads();
  uint64_t total = 0;
  constexpr uint64_t scratchBytes = WeightPacking::scratchBytes();
  for (uint32_t i = 0; i < file.weights()->size(); ++i) {
    const module::Weight &weight = *file.weights()->Get(i);
    uint64_t bytes = 0;
    if (weight.resident()) {
      bytes = byteSize(weight.dtype());
      for (int64_t extent : *weight.shape())
        bytes *= extent;
    }
    Result<Allocation> tensor = loaded->allocator.allocate(
        MemoryClass::weights, bytes, "weight " + quote(weight.name()->str()));
    if (!tensor)
      return tensor.takeError();
    loaded->tensors.push_back(std::move(*tensor));
    loaded->pointers.push_back(loaded->tensors.back().data());
    total += bytes;
  }
  Result<Allocation> scratch = loaded->allocator.allocate(
      MemoryClass::temporaries, scratchBytes * threads.size(),
      "loading weights");
  if (!scratch)
    return scratch.takeError();

  loaded->residentBytes = total;
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
  loaded->mapping = std::move(file);
  const WeightsCacheLayout &layout = loaded->mapping->layout();
  loaded->residentBytes = layout.tensorBytes;
  loaded->pointers.resize(module.file().weights()->size());
  for (const WeightsCacheLayout::Place &place : layout.places)
    loaded->pointers[place.weight] = loaded->mapping->data(place);
  if (progress)
    progress("map", layout.tensorBytes, layout.tensorBytes);
  return loaded;
}

int64_t ResidentWeights::damagedWeight() const {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].guardIntact())
      return static_cast<int64_t>(i);
  return -1;
}
