// Shapes of the weight transform program: each source must give exactly the
// shape that its weight states.
#include "core/ModuleFile.h"
#include "prefill/checkpoint/Quote.h"
#include "prefill/checkpoint/Safetensors.h"

#include <algorithm>
#include <limits>
#include <vector>

using namespace prefill;
using namespace prefill::rt;

namespace {

using Shape = std::vector<int64_t>;

constexpr int64_t maxElements = int64_t(1) << 42;
constexpr uint32_t maxInputs = 1024;
constexpr int maxKPack = 64; // WeightPacking's pieces hold whole elements
constexpr int maxDepth = 64; // rows are evaluated by recursion

Shape shapeOf(const module::Weight &weight) {
  return Shape(weight.shape()->begin(), weight.shape()->end());
}

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

class SourceVerifier {
public:
  SourceVerifier(const module::Plan &plan, int64_t maxSeq, uint32_t index,
                 const std::vector<int> &depths)
      : plan(plan), maxSeq(maxSeq), index(index), depths(depths),
        weight(*plan.weights()->Get(index)) {}

  Result<void> verify() {
    if (Result<void> ok = verifyShape(); !ok)
      return ok;
    if (Result<void> ok = verifyDType(); !ok)
      return ok;
    switch (weight.source_type()) {
    case module::WeightSource::CheckpointSource:
      if (weight.source_as_CheckpointSource()->name()->size() == 0)
        return fail("the checkpoint tensor has no name");
      return {};
    case module::WeightSource::ConcatSource:
      return verifyConcat(*weight.source_as_ConcatSource());
    case module::WeightSource::InterleaveSource:
      return verifyInterleave(*weight.source_as_InterleaveSource());
    case module::WeightSource::ScaleColumnsSource:
      return verifyScaleColumns(*weight.source_as_ScaleColumnsSource());
    case module::WeightSource::PackSource:
      return verifyPack(*weight.source_as_PackSource());
    case module::WeightSource::RopeTableSource:
      return verifyRopeTable(*weight.source_as_RopeTableSource());
    case module::WeightSource::QuantizeSource:
      return verifyQuantize(*weight.source_as_QuantizeSource());
    case module::WeightSource::QuantizeScaleSource:
      return verifyQuantizeScale(*weight.source_as_QuantizeScaleSource());
    case module::WeightSource::NONE:
      break;
    }
    return fail("unknown source " + std::to_string(int(weight.source_type())));
  }

  /// Transforms between this weight and its deepest input.
  int depth = 0;

private:
  Error fail(const std::string &message) const {
    return invalidModule("weight " + std::to_string(index) + " " +
                         quote(weight.name()->string_view()) + ": " + message);
  }

  Result<void> verifyShape() {
    if (weight.shape()->size() < 1 || weight.shape()->size() > 4)
      return fail("rank " + std::to_string(weight.shape()->size()) +
                  ", expected 1 to 4");
    // FlatBuffers verifies the alignment of a vector's length only.
    if (reinterpret_cast<uintptr_t>(weight.shape()->data()) % 8 != 0)
      return fail("the shape is not aligned to 8 bytes: the file is damaged");
    shape = shapeOf(weight);
    int64_t elements = 1;
    for (int64_t extent : shape) {
      if (extent < 1 || extent > maxElements / elements)
        return fail("shape " + stringifyShape(shape) +
                    ", expected extents of at least 1 and at most 2^42 "
                    "elements");
      elements *= extent;
    }
    return {};
  }

  /// Sources that need a certain dtype say so themselves.
  Result<void> verifyDType() {
    switch (weight.dtype()) {
    case module::DType::f32:
    case module::DType::bf16:
    case module::DType::f16:
      return {};
    case module::DType::i8:
      if (weight.source_type() == module::WeightSource::QuantizeSource ||
          weight.source_type() == module::WeightSource::PackSource)
        return {};
      return fail("dtype is i8, but neither quantized nor packed");
    default:
      return fail("dtype is " + std::to_string(int(weight.dtype())) +
                  ", expected f32, bf16, f16 or i8");
    }
  }

  /// The shape of an input, which must be an earlier weight: the program has no
  /// cycles.
  Result<Shape> anyInput(uint32_t which) {
    if (which >= index)
      return fail("input " + std::to_string(which) +
                  " is not an earlier weight");
    depth = std::max(depth, depths[which] + 1);
    if (depth > maxDepth)
      return fail("more than " + std::to_string(maxDepth) +
                  " transforms on top of each other");
    return shapeOf(*plan.weights()->Get(which));
  }

  /// Integers mean nothing without their scales, so that packing alone takes
  /// them.
  Result<Shape> input(uint32_t which) {
    Result<Shape> given = anyInput(which);
    if (given && plan.weights()->Get(which)->dtype() == module::DType::i8)
      return fail("input " + std::to_string(which) +
                  " has dtype i8, expected floats");
    return given;
  }

  Result<Shape> matrixInput(uint32_t which, const char *verb) {
    Result<Shape> matrix = input(which);
    if (matrix && matrix->size() != 2)
      return fail(std::string(verb) + " " + stringifyShape(*matrix) +
                  ", expected rank 2");
    return matrix;
  }

  Result<void> expect(const Shape &given, const char *source) {
    if (given == shape)
      return {};
    return fail("shape " + stringifyShape(shape) + ", but the " + source +
                " gives " + stringifyShape(given));
  }

  Result<void> verifyConcat(const module::ConcatSource &source) {
    if (source.inputs()->size() == 0 || source.inputs()->size() > maxInputs)
      return fail("concatenates " + std::to_string(source.inputs()->size()) +
                  " inputs, expected 1 to " + std::to_string(maxInputs));
    Shape sum;
    for (uint32_t which : *source.inputs()) {
      Result<Shape> next = input(which);
      if (!next)
        return next.takeError();
      if (sum.empty()) {
        sum = *next;
        continue;
      }
      if (!std::equal(sum.begin() + 1, sum.end(), next->begin() + 1,
                      next->end()))
        return fail("concatenates " + stringifyShape(sum) + " and " +
                    stringifyShape(*next));
      if (sum[0] > maxElements - (*next)[0])
        return fail("the concatenation is too long");
      sum[0] += (*next)[0];
    }
    return expect(sum, "concatenation");
  }

  Result<void> verifyInterleave(const module::InterleaveSource &source) {
    if (source.inputs()->size() != 2)
      return fail("interleaves " + std::to_string(source.inputs()->size()) +
                  " inputs, expected 2");
    Result<Shape> first = input(source.inputs()->Get(0)),
                  second = input(source.inputs()->Get(1));
    if (!first)
      return first.takeError();
    if (!second)
      return second.takeError();
    if (first->size() > 2 || *first != *second)
      return fail("interleaves " + stringifyShape(*first) + " and " +
                  stringifyShape(*second) +
                  ", expected equal shapes of rank 1 or 2");
    if (source.granularity() < 1)
      return fail("interleaves in runs of " +
                  std::to_string(source.granularity()));
    Shape given = *first;
    given[0] =
        2 * ceilDiv(given[0], source.granularity()) * source.granularity();
    return expect(given, "interleaving");
  }

  Result<void> verifyScaleColumns(const module::ScaleColumnsSource &source) {
    Result<Shape> matrix = input(source.input()), gain = input(source.gain());
    if (!matrix)
      return matrix.takeError();
    if (!gain)
      return gain.takeError();
    if (matrix->size() != 2 || gain->size() != 1 || (*matrix)[1] != (*gain)[0])
      return fail("scales the columns of " + stringifyShape(*matrix) + " by " +
                  stringifyShape(*gain));
    return expect(*matrix, "scaling");
  }

  Result<void> verifyPack(const module::PackSource &source) {
    Result<Shape> matrix = anyInput(source.input());
    if (!matrix)
      return matrix.takeError();
    if (matrix->size() != 2)
      return fail("packs " + stringifyShape(*matrix) + ", expected rank 2");
    module::DType from = plan.weights()->Get(source.input())->dtype();
    if ((from == module::DType::i8) != (weight.dtype() == module::DType::i8))
      return fail(std::string("packs ") + module::EnumNameDType(from) + " as " +
                  module::EnumNameDType(weight.dtype()) +
                  ", expected i8 from i8 and floats from floats");
    int64_t rows = (*matrix)[0];
    int64_t panel = source.panel_n(), group = source.group_n();
    if (panel < 1 || source.k_pack() < 1 || source.k_pack() > maxKPack ||
        group < 1)
      return fail("packs with panel_n " + std::to_string(panel) + ", k_pack " +
                  std::to_string(source.k_pack()) + ", group_n " +
                  std::to_string(group) +
                  ", expected at least 1 each and k_pack at most " +
                  std::to_string(maxKPack));
    int64_t fullGroups = rows / group;
    int64_t panels = fullGroups * ceilDiv(group, panel) +
                     ceilDiv(rows - fullGroups * group, panel);
    return expect({panels, ceilDiv((*matrix)[1], source.k_pack()), panel,
                   source.k_pack()},
                  "packing");
  }

  Result<void> verifyRopeTable(const module::RopeTableSource &source) {
    if (source.inv_freq()->size() == 0 || source.inv_freq()->size() > 1 << 16)
      return fail("rope table of " + std::to_string(source.inv_freq()->size()) +
                  " frequencies, expected 1 to 65536");
    if (source.max_position() < maxSeq)
      return fail("rope table for " + std::to_string(source.max_position()) +
                  " positions, but max_seq is " + std::to_string(maxSeq));
    if (weight.dtype() != module::DType::f32)
      return fail("a rope table has to be f32");
    return expect(
        {source.max_position(), int64_t(source.inv_freq()->size()) * 2},
        "rope table");
  }

  Result<void> verifyQuantize(const module::QuantizeSource &source) {
    Result<Shape> matrix = matrixInput(source.input(), "quantizes");
    if (!matrix)
      return matrix.takeError();
    if (weight.dtype() != module::DType::i8)
      return fail("a quantized matrix has to be i8");
    return expect(*matrix, "quantization");
  }

  Result<void> verifyQuantizeScale(const module::QuantizeScaleSource &source) {
    Result<Shape> matrix = matrixInput(source.input(), "gives scales of");
    if (!matrix)
      return matrix.takeError();
    if (weight.dtype() != module::DType::f32)
      return fail("scales of a quantized matrix have to be f32");
    return expect({(*matrix)[0]}, "quantization");
  }

  const module::Plan &plan;
  int64_t maxSeq;
  uint32_t index;
  const std::vector<int> &depths;
  const module::Weight &weight;
  Shape shape;
};

} // namespace

Result<void> prefill::rt::verifyWeightProgram(const module::Plan &plan,
                                              int64_t maxSeq) {
  int64_t residentBytes = 0;
  std::vector<int> depths;
  for (uint32_t i = 0; i < plan.weights()->size(); ++i) {
    SourceVerifier verifier(plan, maxSeq, i, depths);
    if (Result<void> ok = verifier.verify(); !ok)
      return ok;
    depths.push_back(verifier.depth);
    const module::Weight &weight = *plan.weights()->Get(i);
    if (!weight.resident())
      continue;
    int64_t bytes = static_cast<int64_t>(byteSize(weight));
    if (residentBytes > std::numeric_limits<int64_t>::max() / 2 - bytes)
      return invalidModule("the weights overflow 2^62 bytes");
    residentBytes += bytes;
  }
  return {};
}
