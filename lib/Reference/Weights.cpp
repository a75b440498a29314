//===- Weights.cpp - checkpoint values and the weight program -------------===//
#include "prefill/Reference/Weights.h"
#include "prefill/Reference/Evaluators.h"
#include "prefill/checkpoint/FloatConversion.h"
#include "prefill/checkpoint/RandomWeights.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cstring>

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using llvm::createStringError;
using llvm::Expected;
using llvm::Twine;
using ::prefill::rt::StoredType;
using ::prefill::rt::stringifyShape;

WeightProvider::~WeightProvider() = default;

Expected<Tensor> RandomWeights::get(StringRef name, ArrayRef<int64_t> shape) {
  ::prefill::rt::RandomTensor random(seed, std::string_view(name),
                                     std::vector<int64_t>(shape));
  Tensor result(shape);
  for (auto [index, value] : llvm::enumerate(result.values))
    value = random[index];
  return result;
}

/// Element `index` of unaligned little-endian data.
template <typename T> static T load(const std::byte *data, uint64_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

static Expected<double> loadElement(StoredType type, const std::byte *data,
                                    uint64_t index) {
  switch (type) {
  case StoredType::F64:
    return load<double>(data, index);
  case StoredType::F32:
    return load<float>(data, index);
  case StoredType::BF16:
    return ::prefill::rt::bf16ToFloat(load<uint16_t>(data, index));
  case StoredType::F16:
    return ::prefill::rt::f16ToFloat(load<uint16_t>(data, index));
  default:
    return createStringError(Twine("dtype ") + stringify(type) +
                             ", expected F64, F32, BF16 or F16");
  }
}

Expected<Tensor> CheckpointWeights::get(StringRef name,
                                        ArrayRef<int64_t> shape) {
  const ::prefill::rt::TensorView *view =
      checkpoint.find(std::string_view(name));
  if (!view)
    return createStringError("the checkpoint has no tensor '" + name + "'");
  if (ArrayRef<int64_t>(view->shape) != shape)
    return createStringError("tensor '" + name +
                             "' of the checkpoint has shape " +
                             stringifyShape(view->shape) + ", expected " +
                             stringifyShape(std::vector<int64_t>(shape)));
  Tensor result(shape);
  for (auto [index, value] : llvm::enumerate(result.values)) {
    Expected<double> element = loadElement(view->dtype, view->data, index);
    if (!element)
      return createStringError("tensor '" + name + "' of the checkpoint has " +
                               llvm::toString(element.takeError()));
    value = *element;
  }
  return result;
}

Expected<Tensor> GivenWeights::get(StringRef name, ArrayRef<int64_t> shape) {
  auto found = values.find(name);
  if (found == values.end())
    return createStringError("no tensor '" + name + "' was given");
  if (ArrayRef<int64_t>(found->second.shape) != shape)
    return createStringError("tensor '" + name + "' was given another shape");
  return found->second;
}

//===----------------------------------------------------------------------===//
// The steps of the program
//===----------------------------------------------------------------------===//

/// Rows of `source` go behind those of `target`; rank 1 counts as one column.
static void appendRows(Tensor &target, const Tensor &source) {
  target.values.insert(target.values.end(), source.values.begin(),
                       source.values.end());
}

static Tensor concat(ArrayRef<Tensor> inputs, ArrayRef<int64_t> shape) {
  Tensor result;
  result.shape.assign(shape.begin(), shape.end());
  for (const Tensor &input : inputs)
    appendRows(result, input);
  return result;
}

/// Runs of `granularity` rows of the two in turn; missing rows are zero.
static Tensor interleave(const Tensor &first, const Tensor &second,
                         int64_t granularity, ArrayRef<int64_t> shape) {
  Tensor result(shape);
  int64_t rows = first.rows();
  int64_t width = first.rank() == 1 ? 1 : first.channels();
  for (int64_t row = 0; row < rows; ++row) {
    int64_t run = row / granularity, offset = row % granularity;
    int64_t target = 2 * run * granularity + offset;
    for (int64_t c = 0; c < width; ++c) {
      result.values[target * width + c] = first.values[row * width + c];
      result.values[(target + granularity) * width + c] =
          second.values[row * width + c];
    }
  }
  return result;
}

static Tensor scaleColumns(Tensor weight, const Tensor &gain) {
  for (int64_t row = 0; row < weight.rows(); ++row)
    for (int64_t c = 0; c < weight.channels(); ++c)
      weight.row(row)[c] *= gain.values[c];
  return weight;
}

Expected<std::shared_ptr<const Tensor>> WeightProgram::get(StringRef name) {
  std::shared_ptr<const Tensor> &value = done[name];
  if (value)
    return value;
  Expected<Tensor> result = evaluate(name, 0);
  if (!result)
    return result.takeError();
  if (rounding == Rounding::Model)
    roundTo(symbols.lookup<WeightOp>(name).getTensorType().getElementType(),
            *result);
  value = std::make_shared<const Tensor>(std::move(*result));
  return value;
}

Expected<Tensor> WeightProgram::evaluate(StringRef name, unsigned depth) {
  auto weight = symbols.lookup<WeightOp>(name);
  if (!weight)
    return createStringError("there is no weight @" + name);
  // Deeper than any program the compiler makes: the steps go in a circle.
  if (depth > 16)
    return createStringError("weight @" + name + " is made from itself");
  return evaluate(weight, depth);
}

Expected<Tensor> WeightProgram::evaluate(WeightOp weight, unsigned depth) {
  ArrayRef<int64_t> shape = weight.getTensorType().getShape();
  auto input = [&](FlatSymbolRefAttr symbol) {
    return evaluate(symbol.getValue(), depth + 1);
  };
  Expected<Tensor> result =
      llvm::TypeSwitch<Attribute, Expected<Tensor>>(weight.getSource())
          .Case([&](CheckpointAttr step) {
            return provider.get(step.getName(), shape);
          })
          .Case([&](ConcatAttr step) -> Expected<Tensor> {
            std::vector<Tensor> inputs;
            for (FlatSymbolRefAttr symbol : step.getInputs()) {
              Expected<Tensor> part = input(symbol);
              if (!part)
                return part.takeError();
              inputs.push_back(std::move(*part));
            }
            return concat(inputs, shape);
          })
          .Case([&](InterleaveAttr step) -> Expected<Tensor> {
            Expected<Tensor> first = input(step.getFirst());
            if (!first)
              return first.takeError();
            Expected<Tensor> second = input(step.getSecond());
            if (!second)
              return second.takeError();
            return interleave(*first, *second, step.getGranularity(), shape);
          })
          .Case([&](ScaleColumnsAttr step) -> Expected<Tensor> {
            Expected<Tensor> matrix = input(step.getInput());
            if (!matrix)
              return matrix.takeError();
            Expected<Tensor> gain = input(step.getGain());
            if (!gain)
              return gain.takeError();
            return scaleColumns(std::move(*matrix), *gain);
          })
          .Case([&](RopeTableAttr step) -> Expected<Tensor> {
            return ropeTable(step.getRope(), step.getMaxPosition());
          })
          .Case([&](QuantizeAttr step) -> Expected<Tensor> {
            Expected<Tensor> matrix = input(step.getInput());
            if (!matrix)
              return matrix.takeError();
            return quantizeRows(*matrix, rounding).integers;
          })
          .Case([&](QuantizeScaleAttr step) -> Expected<Tensor> {
            Expected<Tensor> matrix = input(step.getInput());
            if (!matrix)
              return matrix.takeError();
            return Tensor(shape, quantizeRows(*matrix, rounding).scales.values);
          })
          .Default([&](Attribute step) -> Expected<Tensor> {
            return createStringError(
                "weight @" + weight.getSymName() +
                (isa<PackAttr>(step) ? " is packed: the reference interpreter "
                                       "runs IR before prefill-pack-weights"
                                     : " has an unknown source"));
          });
  if (result && rounding == Rounding::Model)
    roundTo(Float32Type::get(weight.getContext()), *result);
  return result;
}
