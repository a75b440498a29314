#include "core/ResidentWeights.h"
#include "core/WeightPacking.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <cstring>

using namespace prefill;
using namespace prefill::rt;

namespace {

/// Progress is reported, and a device is given its weights, about every so many
/// bytes.
constexpr int64_t progressBytes = int64_t(32) << 20;

} // namespace

Result<void> ResidentWeights::allocate() {
  const Placement &placement = owner.device().threads().placement();
  for (const module::Weight *weight : *owner.plan().weights()) {
    uint64_t bytes = weight->resident() ? byteSize(*weight) : 0;
    Result<Allocation> tensor = allocator.allocate(
        MemoryClass::weights, bytes, "weight " + quote(weight->name()->str()));
    if (!tensor)
      return tensor.takeError();
    // What is smaller shares its pages with other things and fits into caches.
    if (onHost() && bytes >= HostMemory::ownPagesBytes)
      placement.placeShares(tensor->data(), bytes);
    tensors.push_back(std::move(*tensor));
    addresses.push_back(tensors.back().address());
    residentBytes += bytes;
  }
  return {};
}

Result<std::unique_ptr<ResidentWeights>>
ResidentWeights::load(const LoadedModule &module, const TensorSource &source,
                      const Progress &progress) {
  Result<WeightProgram> program = WeightProgram::create(module.plan(), source);
  if (!program)
    return program.takeError();
  std::unique_ptr<ResidentWeights> loaded(new ResidentWeights(module));
  if (Result<void> ok = loaded->allocate(); !ok)
    return ok.takeError();
  if (Result<void> ok = loaded->pack(*program, progress); !ok)
    return ok.takeError();
  return loaded;
}

Result<std::unique_ptr<ResidentWeights>>
ResidentWeights::reserve(const LoadedModule &module) {
  std::unique_ptr<ResidentWeights> loaded(new ResidentWeights(module));
  if (Result<void> ok = loaded->allocate(); !ok)
    return ok.takeError();
  return loaded;
}

Result<std::unique_ptr<ResidentWeights>>
ResidentWeights::share(const LoadedModule &module,
                       const ResidentWeights &other) {
  auto differs = [](const std::string &what) {
    return Error{ErrorCode::invalidArgument,
                 "weights cannot be shared: " + what};
  };
  if (&module.device() != &other.owner.device())
    return differs("the modules are on different devices");
  const auto &mine = *module.plan().weights(),
             &theirs = *other.owner.plan().weights();
  if (mine.size() != theirs.size())
    return differs(std::to_string(mine.size()) + " weights and " +
                   std::to_string(theirs.size()));
  for (uint32_t i = 0; i < mine.size(); ++i) {
    const module::Weight &a = *mine[i], &b = *theirs[i];
    if (a.name()->string_view() != b.name()->string_view() ||
        a.resident() != b.resident() || a.dtype() != b.dtype() ||
        !std::equal(a.shape()->begin(), a.shape()->end(), b.shape()->begin(),
                    b.shape()->end()))
      return differs("they differ in weight " + quote(a.name()->str()));
  }
  std::unique_ptr<ResidentWeights> shared(new ResidentWeights(module));
  shared->addresses = other.addresses;
  shared->residentBytes = other.residentBytes;
  return shared;
}

Result<void> ResidentWeights::pack(const WeightProgram &program,
                                   const Progress &progress) {
  const module::Plan &plan = owner.plan();
  ThreadPool &threads = owner.device().threads();
  constexpr uint64_t scratchBytes = WeightPacking::scratchBytes();
  Allocator loading; // of this machine, whatever the device
  Result<Allocation> scratch =
      loading.allocate(MemoryClass::temporaries, scratchBytes * threads.size(),
                       "loading weights");
  if (!scratch)
    return scratch.takeError();
  Allocation staging; // of a device's weights

  uint64_t done = 0;
  if (progress)
    progress("pack", 0, residentBytes);
  for (uint32_t i = 0; i < plan.weights()->size(); ++i) {
    if (!plan.weights()->Get(i)->resident())
      continue;
    WeightPacking writer(plan, program, i);
    int64_t slice = std::max<int64_t>(1, progressBytes / writer.unitBytes());
    for (int64_t first = 0; first < writer.units(); first += slice) {
      int64_t count = std::min(slice, writer.units() - first);
      uint64_t bytes = count * writer.unitBytes();
      DeviceAddress address = tensors[i].address() + first * writer.unitBytes();
      std::byte *target = static_cast<std::byte *>(hostPointer(address));
      if (!onHost()) {
        if (staging.size() < bytes) {
          staging = Allocation();
          Result<Allocation> grown = loading.allocate(MemoryClass::temporaries,
                                                      bytes, "copying weights");
          if (!grown)
            return grown.takeError();
          staging = std::move(*grown);
        }
        target = staging.data();
        std::memset(target, 0, bytes);
      }
      threads.run(count, [&](int thread, int64_t begin, int64_t end) {
        std::byte *own = scratch->data() + thread * scratchBytes;
        for (int64_t unit = begin; unit < end; ++unit)
          writer.write(first + unit, target + unit * writer.unitBytes(), own);
      });
      if (!onHost())
        if (Result<void> ok = allocator.memory().upload(address, target, bytes);
            !ok)
          return ok;
      done += bytes;
      if (progress)
        progress("pack", done, residentBytes);
    }
  }
  return {};
}

Result<std::unique_ptr<ResidentWeights>>
ResidentWeights::map(const LoadedModule &module, WeightsCacheFile file,
                     const Progress &progress) {
  std::unique_ptr<ResidentWeights> loaded(new ResidentWeights(module));
  const WeightsCacheLayout &layout = file.layout();
  if (!loaded->onHost() ||
      module.device().threads().placement().numShares() > 1) {
    if (Result<void> ok = loaded->allocate(); !ok)
      return ok.takeError();
    if (Result<void> ok = loaded->copyFrom(file, progress); !ok)
      return ok.takeError();
    return loaded;
  }
  loaded->residentBytes = layout.tensorBytes;
  loaded->addresses.resize(module.plan().weights()->size());
  for (const WeightsCacheLayout::Place &place : layout.places)
    loaded->addresses[place.weight] = addressOf(file.data(place));
  if (progress)
    progress("map", layout.tensorBytes, layout.tensorBytes);
  loaded->mapping = std::move(file); // the addresses stay
  return loaded;
}

Result<void> ResidentWeights::copyFrom(const WeightsCacheFile &file,
                                       const Progress &progress) {
  constexpr uint64_t piece = weightsCachePiece;
  uint64_t done = 0;
  for (const WeightsCacheLayout::Place &place : file.layout().places) {
    Allocation &target = tensors[place.weight];
    if (!onHost()) {
      for (uint64_t first = 0; first < place.bytes; first += progressBytes) {
        uint64_t count = std::min<uint64_t>(progressBytes, place.bytes - first);
        if (Result<void> ok = allocator.memory().upload(
                target.address() + first, file.data(place) + first, count);
            !ok)
          return ok;
        done += count;
        if (progress)
          progress("map", done, residentBytes);
      }
      continue;
    }
    owner.device().threads().run(
        static_cast<int64_t>((place.bytes + piece - 1) / piece),
        [&](int, int64_t begin, int64_t end) {
          uint64_t first = static_cast<uint64_t>(begin) * piece,
                   last = std::min(place.bytes,
                                   static_cast<uint64_t>(end) * piece);
          std::memcpy(target.data() + first, file.data(place) + first,
                      last - first);
        });
    done += place.bytes;
    if (progress)
      progress("map", done, residentBytes);
  }
  return {};
}

Result<const std::byte *>
ResidentWeights::read(uint32_t weight, std::vector<std::byte> &copy) const {
  if (onHost())
    return data(weight);
  copy.resize(byteSize(*owner.plan().weights()->Get(weight)));
  if (Result<void> ok = allocator.memory().download(
          copy.data(), addresses[weight], copy.size());
      !ok)
    return ok.takeError();
  return static_cast<const std::byte *>(copy.data());
}

int64_t ResidentWeights::damagedWeight() const {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].guardIntact())
      return static_cast<int64_t>(i);
  return -1;
}
