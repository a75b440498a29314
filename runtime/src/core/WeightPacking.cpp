#include "core/WeightPacking.h"
#include "cpu/WeightKernels.h"
#include "prefill/checkpoint/FloatConversion.h"

#include <algorithm>
#include <cstring>

using namespace prefill;
using namespace prefill::rt;

WeightPacking::WeightPacking(const module::Plan &plan,
                             const WeightProgram &program, uint32_t index)
    : program(program), weight(*plan.weights()->Get(index)),
      pack(weight.source_as_PackSource()), rows(pack ? pack->input() : index),
      elementBytes(byteSize(weight.dtype())), numUnits(weight.shape()->Get(0)),
      unitElements(WeightProgram::rowLength(weight)) {
  static_assert(WeightKernels::blockRows == 16, "the rows of Scratch");
  const module::Weight &input = *plan.weights()->Get(rows);
  if (const auto *quantized = input.source_as_QuantizeSource())
    rows = quantized->input();
  if (!pack)
    return;
  inputRows = input.shape()->Get(0);
  K = input.shape()->Get(1);
  panelsPerGroup = (pack->group_n() + pack->panel_n() - 1) / pack->panel_n();
}

void WeightPacking::write(int64_t unit, std::byte *target,
                          std::byte *scratchMemory) const {
  auto &scratch = *reinterpret_cast<Scratch *>(scratchMemory);
  if (pack)
    return writePanel(unit, target, scratch);
  float factor = factorOf(unit);
  for (int64_t first = 0; first < unitElements; first += pieceElements) {
    int64_t count = std::min(pieceElements, unitElements - first);
    program.row(rows, unit, first, count, scratch.row);
    round(scratch.row, count, factor, target + first * elementBytes);
  }
}

/// Of no use to floats.
float WeightPacking::factorOf(int64_t row) const {
  return weight.dtype() == module::DType::i8
             ? program.quantization(rows, row).factor
             : 1;
}

void WeightPacking::round(const float *values, int64_t count, float factor,
                          std::byte *target) const {
  auto *out16 = reinterpret_cast<uint16_t *>(target);
  switch (weight.dtype()) {
  case module::DType::i8:
    return weightKernels().f32ToInt8(values, factor, count,
                                     reinterpret_cast<int8_t *>(target));
  case module::DType::bf16:
    return weightKernels().f32ToBf16(values, count, out16);
  case module::DType::f16:
    for (int64_t i = 0; i < count; ++i)
      out16[i] = floatToF16(values[i]);
    return;
  default:
    std::memcpy(target, values, count * sizeof(float));
    return;
  }
}

void WeightPacking::writePanel(int64_t panel, std::byte *target,
                               Scratch &scratch) const {
  int64_t panelN = pack->panel_n(), groupN = pack->group_n();
  int64_t firstInGroup = panel % panelsPerGroup * panelN;
  int64_t firstRow = panel / panelsPerGroup * groupN + firstInGroup;
  int64_t groupRows =
      std::min(groupN, inputRows - panel / panelsPerGroup * groupN);
  int64_t filled = std::min(panelN, groupRows - firstInGroup);
  int64_t packBytes = pack->k_pack() * elementBytes;
  int64_t stride = panelN * packBytes;
  // Whole elements of k_pack numbers; a longer one is one piece's business.
  int64_t step =
      std::max<int64_t>(1, pieceElements / pack->k_pack()) * pack->k_pack();
  constexpr int64_t blockRows = WeightKernels::blockRows;
  constexpr int64_t pitch = sizeof scratch.rounded[0];

  for (int64_t n = 0; n < filled; n += blockRows) {
    int64_t blockCount = std::min(blockRows, filled - n);
    for (int64_t row = 0; row < blockCount; ++row)
      scratch.factors[row] = factorOf(firstRow + n + row);
    for (int64_t k = 0; k < K; k += step) {
      int64_t count = std::min(step, K - k);
      for (int64_t row = 0; row < blockCount; ++row) {
        program.row(rows, firstRow + n + row, k, count, scratch.row);
        round(scratch.row, count, scratch.factors[row], scratch.rounded[row]);
      }
      std::byte *block = target + k / pack->k_pack() * stride + n * packBytes;
      int64_t whole = count / pack->k_pack() * pack->k_pack();
      if (packBytes == 4 && blockCount == blockRows)
        weightKernels().transpose(scratch.rounded[0], pitch,
                                  whole / pack->k_pack(), block, stride);
      else
        for (int64_t row = 0; row < blockCount; ++row)
          scatter(scratch.rounded[row], whole / pack->k_pack(),
                  block + row * packBytes, stride);
      // K's last, incomplete element.
      for (int64_t row = 0; row < blockCount && whole < count; ++row)
        std::memcpy(block + whole / pack->k_pack() * stride + row * packBytes,
                    scratch.rounded[row] + whole * elementBytes,
                    (count - whole) * elementBytes);
    }
  }
}

void WeightPacking::scatter(const std::byte *row, int64_t count,
                            std::byte *target, int64_t stride) const {
  int64_t packBytes = pack->k_pack() * elementBytes;
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(target + i * stride, row + i * packBytes, packBytes);
}
