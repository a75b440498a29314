#include "core/ResidentWeights.h"
#include "prefill/checkpoint/FloatConversion.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <cstring>

using namespace prefill;
using namespace prefill::rt;

namespace {

/// Progress is reported about every so many bytes.
constexpr int64_t progressBytes = int64_t(32) << 20;

/// Rounds `count` values to `dtype`.
void store(module::DType dtype, const float *values, int64_t count,
           std::byte *out) {
  auto *out16 = reinterpret_cast<uint16_t *>(out);
  switch (dtype) {
  case module::DType::bf16:
    for (int64_t i = 0; i < count; ++i)
      out16[i] = floatToBf16(values[i]);
    return;
  case module::DType::f16:
    for (int64_t i = 0; i < count; ++i)
      out16[i] = floatToF16(values[i]);
    return;
  default:
    std::memcpy(out, values, count * sizeof(float));
    return;
  }
}

/// Copies `count` units of `unitBytes` to places `stride` bytes apart.
void scatter(const std::byte *units, int64_t count, int64_t unitBytes,
             std::byte *out, int64_t stride) {
  if (unitBytes == 4) { // pairs of 16-bit numbers and single f32: one move each
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(out + i * stride, units + i * 4, 4);
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(out + i * stride, units + i * unitBytes, unitBytes);
}

/// Writes one resident weight, in units that threads share: panels of a packed
/// weight, rows of any other.
class TensorWriter {
public:
  TensorWriter(const module::Module &file, const WeightProgram &program,
               uint32_t index, std::byte *out)
      : program(program), index(index), weight(*file.weights()->Get(index)),
        pack(weight.source_as_PackSource()), out(out) {
    elementBytes = byteSize(weight.dtype());
    numUnits = weight.shape()->Get(0);
    unitElements = WeightProgram::rowLength(weight);
    if (pack) {
      const module::Weight &input = *file.weights()->Get(pack->input());
      inputRows = input.shape()->Get(0);
      K = input.shape()->Get(1);
      panelsPerGroup =
          (pack->group_n() + pack->panel_n() - 1) / pack->panel_n();
    }
  }

  int64_t units() const { return numUnits; }
  int64_t unitBytes() const { return unitElements * elementBytes; }
  /// Bytes that a thread needs: a row in f32 and, for packing, the same row
  /// rounded.
  static uint64_t scratchBytes(const module::Module &file, uint32_t index) {
    const module::Weight &weight = *file.weights()->Get(index);
    const auto *pack = weight.source_as_PackSource();
    if (!pack)
      return alignUp(WeightProgram::rowLength(weight) * sizeof(float));
    int64_t K = file.weights()->Get(pack->input())->shape()->Get(1);
    return 2 * alignUp(K * sizeof(float));
  }

  void write(int64_t unit, std::byte *scratch) const {
    std::byte *target = out + unit * unitBytes();
    float *row = reinterpret_cast<float *>(scratch);
    if (pack)
      return writePanel(unit, target, row,
                        scratch + alignUp(K * sizeof(float)));
    program.row(index, unit, row);
    store(weight.dtype(), row, unitElements, target);
  }

private:
  static uint64_t alignUp(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

  /// [ceil(K / k_pack)][panel_n][k_pack]; what the input does not fill is zero.
  void writePanel(int64_t panel, std::byte *target, float *row,
                  std::byte *rounded) const {
    int64_t panelN = pack->panel_n(), groupN = pack->group_n();
    std::memset(target, 0, unitBytes());
    int64_t group = panel / panelsPerGroup;
    int64_t firstInGroup = panel % panelsPerGroup * panelN;
    int64_t groupRows = std::min(groupN, inputRows - group * groupN);
    int64_t rows = std::min(panelN, groupRows - firstInGroup);
    int64_t packBytes = pack->k_pack() * elementBytes;
    int64_t fullPacks = K / pack->k_pack();
    for (int64_t n = 0; n < rows; ++n) {
      program.row(pack->input(), group * groupN + firstInGroup + n, row);
      store(weight.dtype(), row, K, rounded);
      std::byte *column = target + n * packBytes;
      scatter(rounded, fullPacks, packBytes, column, panelN * packBytes);
      if (int64_t rest = K - fullPacks * pack->k_pack())
        std::memcpy(column + fullPacks * panelN * packBytes,
                    rounded + fullPacks * packBytes, rest * elementBytes);
    }
  }

  const WeightProgram &program;
  uint32_t index;
  const module::Weight &weight;
  const module::PackSource *pack;
  std::byte *out;
  int64_t elementBytes, numUnits, unitElements;
  int64_t inputRows = 0, K = 0, panelsPerGroup = 1;
};

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
  uint64_t total = 0, scratchBytes = 0;
  for (uint32_t i = 0; i < file.weights()->size(); ++i) {
    const module::Weight &weight = *file.weights()->Get(i);
    uint64_t bytes = 0;
    if (weight.resident()) {
      bytes = byteSize(weight.dtype());
      for (int64_t extent : *weight.shape())
        bytes *= extent;
      scratchBytes =
          std::max(scratchBytes, TensorWriter::scratchBytes(file, i));
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
    TensorWriter writer(file, *program, i, loaded->tensors[i].data());
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
