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

/// Rounds `count` values to `dtype` and stores them `stride` elements apart.
void store(module::DType dtype, const float *values, int64_t count,
           std::byte *out, int64_t stride = 1) {
  auto *out16 = reinterpret_cast<uint16_t *>(out);
  auto *out32 = reinterpret_cast<float *>(out);
  switch (dtype) {
  case module::DType::bf16:
    for (int64_t i = 0; i < count; ++i)
      out16[i * stride] = floatToBf16(values[i]);
    return;
  case module::DType::f16:
    for (int64_t i = 0; i < count; ++i)
      out16[i * stride] = floatToF16(values[i]);
    return;
  default:
    for (int64_t i = 0; i < count; ++i)
      out32[i * stride] = values[i];
    return;
  }
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
  /// f32 values that a thread needs.
  static int64_t scratchElements(const module::Module &file, uint32_t index) {
    const module::Weight &weight = *file.weights()->Get(index);
    const auto *pack = weight.source_as_PackSource();
    return pack ? file.weights()->Get(pack->input())->shape()->Get(1)
                : WeightProgram::rowLength(weight);
  }

  void write(int64_t unit, float *scratch) const {
    std::byte *target = out + unit * unitBytes();
    if (pack)
      return writePanel(unit, target, scratch);
    program.row(index, unit, scratch);
    store(weight.dtype(), scratch, unitElements, target);
  }

private:
  /// [ceil(K / k_pack)][panel_n][k_pack]; what the input does not fill is zero.
  void writePanel(int64_t panel, std::byte *target, float *scratch) const {
    int64_t panelN = pack->panel_n(), kPack = pack->k_pack(),
            groupN = pack->group_n();
    std::memset(target, 0, unitBytes());
    int64_t group = panel / panelsPerGroup;
    int64_t firstInGroup = panel % panelsPerGroup * panelN;
    int64_t groupRows = std::min(groupN, inputRows - group * groupN);
    int64_t rows = std::min(panelN, groupRows - firstInGroup);
    for (int64_t n = 0; n < rows; ++n) {
      program.row(pack->input(), group * groupN + firstInGroup + n, scratch);
      for (int64_t kk = 0; kk < kPack; ++kk) {
        // Elements kk, kk + k_pack, ... of the row, one for each k block.
        int64_t count = (K - kk + kPack - 1) / kPack;
        if (count <= 0)
          break;
        storeStrided(scratch + kk, count,
                     target + (n * kPack + kk) * elementBytes);
      }
    }
  }

  void storeStrided(const float *values, int64_t count,
                    std::byte *target) const {
    int64_t kPack = pack->k_pack(), stride = pack->panel_n() * kPack;
    // In runs that stay in L1, gathered first so that rounding is vectorized.
    float run[256];
    for (int64_t done = 0; done < count; done += 256) {
      int64_t length = std::min<int64_t>(256, count - done);
      for (int64_t i = 0; i < length; ++i)
        run[i] = values[(done + i) * kPack];
      store(weight.dtype(), run, length, target + done * stride * elementBytes,
            stride);
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
  uint64_t total = 0, scratchElements = 0;
  for (uint32_t i = 0; i < file.weights()->size(); ++i) {
    const module::Weight &weight = *file.weights()->Get(i);
    uint64_t bytes = 0;
    if (weight.resident()) {
      bytes = byteSize(weight.dtype());
      for (int64_t extent : *weight.shape())
        bytes *= extent;
      scratchElements = std::max<uint64_t>(
          scratchElements, TensorWriter::scratchElements(file, i));
    }
    Result<Allocation> tensor = loaded->allocator.allocate(
        MemoryClass::weights, bytes, "weight " + quote(weight.name()->str()));
    if (!tensor)
      return tensor.takeError();
    loaded->tensors.push_back(std::move(*tensor));
    total += bytes;
  }
  Result<Allocation> scratch = loaded->allocator.allocate(
      MemoryClass::temporaries,
      scratchElements * sizeof(float) * threads.size(), "loading weights");
  if (!scratch)
    return scratch.takeError();
  float *scratchData = reinterpret_cast<float *>(scratch->data());

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
        float *own = scratchData + thread * scratchElements;
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

int64_t ResidentWeights::damagedWeight() const {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].guardIntact())
      return static_cast<int64_t>(i);
  return -1;
}
