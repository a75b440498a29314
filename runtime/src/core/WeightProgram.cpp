#include "core/WeightProgram.h"
#include "cpu/WeightKernels.h"

#include <algorithm>
#include <cmath>

using namespace prefill;
using namespace prefill::rt;

Result<WeightProgram> WeightProgram::create(const module::Plan &plan,
                                            const TensorSource &source) {
  WeightProgram program(plan);
  uint32_t count = plan.weights()->size();
  program.readers.resize(count);
  program.gains.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    const module::Weight &weight = *plan.weights()->Get(i);
    if (const auto *tensor = weight.source_as_CheckpointSource()) {
      std::vector<int64_t> shape(weight.shape()->begin(),
                                 weight.shape()->end());
      auto reader = source.find(tensor->name()->str(), shape);
      if (!reader)
        return reader.takeError();
      program.readers[i] = std::move(*reader);
    } else if (const auto *scaled = weight.source_as_ScaleColumnsSource()) {
      // Every row needs the whole gain: evaluate it once. Its own inputs are
      // earlier weights, so they are ready.
      std::vector<float> &gain = program.gains[i];
      gain.resize(plan.weights()->Get(scaled->gain())->shape()->Get(0));
      for (size_t k = 0; k < gain.size(); ++k)
        program.row(scaled->gain(), static_cast<int64_t>(k), 0, 1, &gain[k]);
    }
  }
  return program;
}

int64_t WeightProgram::rowLength(const module::Weight &weight) {
  int64_t length = 1;
  for (uint32_t i = 1; i < weight.shape()->size(); ++i)
    length *= weight.shape()->Get(i);
  return length;
}

RowQuantization WeightProgram::quantization(uint32_t index, int64_t row) const {
  constexpr int64_t pieceElements = 1024;
  float piece[pieceElements], largest = 0;
  int64_t length = rowLength(*plan->weights()->Get(index));
  for (int64_t first = 0; first < length; first += pieceElements) {
    int64_t count = std::min(pieceElements, length - first);
    this->row(index, row, first, count, piece);
    largest = weightKernels().largest(piece, count, largest);
  }
  return RowQuantization::of(largest);
}

void WeightProgram::row(uint32_t index, int64_t row, int64_t begin,
                        int64_t count, float *out) const {
  const module::Weight &weight = *plan->weights()->Get(index);
  switch (weight.source_type()) {
  case module::WeightSource::CheckpointSource:
    readers[index]->read(row * rowLength(weight) + begin, count, out);
    return;

  case module::WeightSource::ConcatSource:
    for (uint32_t input : *weight.source_as_ConcatSource()->inputs()) {
      int64_t rows = plan->weights()->Get(input)->shape()->Get(0);
      if (row < rows)
        return this->row(input, row, begin, count, out);
      row -= rows;
    }
    return;

  case module::WeightSource::InterleaveSource: {
    // Output rows come in runs of g: the first input's run r, then the
    // second's.
    const auto &source = *weight.source_as_InterleaveSource();
    int64_t g = source.granularity(), run = row / g;
    uint32_t input = source.inputs()->Get(run % 2);
    int64_t inputRow = run / 2 * g + row % g;
    if (inputRow < plan->weights()->Get(input)->shape()->Get(0))
      return this->row(input, inputRow, begin, count, out);
    std::fill_n(out, count, 0.0f);
    return;
  }

  case module::WeightSource::ScaleColumnsSource: {
    this->row(weight.source_as_ScaleColumnsSource()->input(), row, begin, count,
              out);
    weightKernels().scale(gains[index].data() + begin, count, out);
    return;
  }

  case module::WeightSource::RopeTableSource: {
    // The angle is rounded to f32 as the models were trained with; its cosine
    // and sine are then correctly rounded, which f32 functions would not be.
    const auto &frequencies = *weight.source_as_RopeTableSource()->inv_freq();
    int64_t half = frequencies.size();
    for (int64_t i = begin; i < begin + count; ++i) {
      double angle = static_cast<float>(row) *
                     frequencies[static_cast<uint32_t>(i % half)];
      out[i - begin] =
          static_cast<float>(i < half ? std::cos(angle) : std::sin(angle));
    }
    return;
  }

  case module::WeightSource::QuantizeSource: {
    uint32_t input = weight.source_as_QuantizeSource()->input();
    float factor = quantization(input, row).factor;
    this->row(input, row, begin, count, out);
    for (int64_t i = 0; i < count; ++i)
      out[i] = quantize(out[i], factor);
    return;
  }

  case module::WeightSource::QuantizeScaleSource:
    *out = quantization(weight.source_as_QuantizeScaleSource()->input(), row)
               .scale;
    return;

  case module::WeightSource::PackSource:
  case module::WeightSource::NONE:
    break;
  }
}
