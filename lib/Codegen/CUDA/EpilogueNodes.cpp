//===- EpilogueNodes.cpp - elementwise nodes of an epilogue ---------------===//
#include "Epilogue.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::cuda;

static constexpr double kLog2E = 1.4426950408889634;

void EpilogueEmitter::setAccumulators(const AccumulatorStage &tile,
                                      Value shared, Value firstColumn) {
  stage = &tile;
  stageShared = shared;
  accumulatorColumn = firstColumn;
}

EpilogueEmitter::Evaluated EpilogueEmitter::round(ArrayRef<Value> values,
                                                  Type element) {
  Evaluated chunk;
  if (element.isF32()) {
    chunk.values.assign(values.begin(), values.end());
    return chunk;
  }
  for (size_t i = 0; i < values.size(); i += 2) {
    Value word = b.pack(values[i], values[i + 1], element);
    auto [first, second] = b.unpack(word, element);
    chunk.words.push_back(word);
    chunk.values.append({first, second});
  }
  return chunk;
}

EpilogueEmitter::Evaluated EpilogueEmitter::evaluate(Value value,
                                                     const Position &at) {
  auto found = evaluated.find({value, at.column});
  if (found != evaluated.end())
    return found->second;
  Evaluated result;
  Operation *op = value.getDefiningOp();
  if (!op && cast<BlockArgument>(value).getOwner() != &body) {
    result = loadChunk(value, row.index, at.column);
  } else if (auto embed = dyn_cast_or_null<EmbedOp>(op)) {
    result = loadChunk(embed.getTable(), rowScalars.lookup(op), at.column);
  } else if (auto select = dyn_cast_or_null<SelectRowsOp>(op)) {
    result = loadChunk(select.getInput(), rowScalars.lookup(op), at.column);
  } else {
    Chunk values = evaluateNode(value, at);
    // Intermediates are f32; a narrower type is a rounding point. What only
    // moves values is exact already.
    Type element = cast<ShapedType>(value.getType()).getElementType();
    if (op && !isa<SplitOp, DeinterleaveOp>(op))
      result = round(values, element);
    else
      result.values = values;
  }
  evaluated[{value, at.column}] = result;
  return result;
}

Chunk EpilogueEmitter::evaluateNode(Value value, const Position &at) {
  auto forEach = [&](ArrayRef<Value> values, auto compute) {
    Chunk results;
    for (Value x : values)
      results.push_back(compute(x));
    return results;
  };
  auto sum = [&](Value lhs, Value rhs) {
    Chunk left = evaluate(lhs, at).values, right = evaluate(rhs, at).values;
    Chunk results;
    for (auto [x, y] : llvm::zip(left, right))
      results.push_back(b.fadd(x, y));
    return results;
  };
  Operation *op = value.getDefiningOp();
  if (!op)
    return evaluateAccumulator(at);
  return llvm::TypeSwitch<Operation *, Chunk>(op)
      .Case([&](AddOp op) { return sum(op.getLhs(), op.getRhs()); })
      .Case([&](BiasAddOp op) { return sum(op.getInput(), op.getBias()); })
      .Case([&](ScaleOp op) {
        Value factor = b.f32(op.getFactor().convertToDouble());
        return forEach(evaluate(op.getInput(), at).values,
                       [&](Value x) { return b.fmul(x, factor); });
      })
      .Case([&](RowRMSScaleOp op) {
        Value scale = rowScalars.lookup(op);
        return forEach(evaluate(op.getInput(), at).values,
                       [&](Value x) { return b.fmul(x, scale); });
      })
      .Case([&](RMSNormOp op) {
        return op.getHeadDim() ? evaluateHeadNorm(op, at)
                               : evaluateRMSNorm(op, at);
      })
      .Case([&](RopeOp op) { return evaluateRope(op, at); })
      .Case([&](GatedActOp op) { return evaluateGatedAct(op, at); })
      .Case([&](SplitOp op) {
        return evaluateSplit(op, cast<OpResult>(value), at);
      })
      .Case([&](DeinterleaveOp op) {
        return evaluateDeinterleave(op, cast<OpResult>(value), at);
      })
      .Case([&](CombineSplitsOp op) { return evaluateCombineSplits(op, at); });
}

EpilogueEmitter::Evaluated EpilogueEmitter::loadChunk(Value argument, Value row,
                                                      Value column) {
  const CudaTensor &tensor = frame.tensor(argument);
  Type element = tensor.elementType;
  Evaluated chunk;
  if (tensor.columns % kChunkColumns != 0) {
    // Rows that don't begin at multiples of 16 bytes; the last columns are
    // read twice rather than past the end.
    for (int64_t i = 0; i < kChunkColumns; ++i) {
      Value at = b.min(b.add(column, i), tensor.columns - 1);
      Value x = b.load(element, tensor.at(b, row, at), "epilogue.load");
      if (!element.isF32())
        x = LLVM::FPExtOp::create(b, b.getF32Type(), x);
      chunk.values.push_back(x);
    }
    return chunk;
  }
  Value pointer = tensor.at(b, row, column);
  if (element.isF32()) {
    for (int64_t half = 0; half < 2; ++half)
      llvm::append_range(chunk.values,
                         b.loadFloats(b.pointer(pointer, half * kChunkBytes),
                                      "epilogue.load"));
    return chunk;
  }
  for (Value word : b.loadChunk(pointer, "epilogue.load")) {
    auto [first, second] = b.unpack(word, element);
    chunk.values.append({first, second});
    chunk.words.push_back(word);
  }
  return chunk;
}

Chunk EpilogueEmitter::evaluateAccumulator(const Position &at) {
  return Chunk(stage->load(b, stageShared, row.inStage,
                           b.sub(at.column, accumulatorColumn)));
}

Chunk EpilogueEmitter::evaluateSplit(SplitOp op, OpResult result,
                                     const Position &at) {
  int64_t offset = 0;
  for (unsigned i = 0; i < result.getResultNumber(); ++i)
    offset += cast<ShapedType>(op->getResultTypes()[i]).getDimSize(1);
  return evaluate(op.getInput(), moved(at, b.add(at.column, offset))).values;
}

Chunk EpilogueEmitter::evaluateDeinterleave(DeinterleaveOp op, OpResult result,
                                            const Position &at) {
  int64_t granularity = op.getGranularity();
  Value run = b.divide(at.column, granularity);
  Value column =
      b.add(b.mul(run, 2 * granularity), b.remainder(at.column, granularity));
  if (result.getResultNumber() == 1)
    column = b.add(column, granularity);
  return evaluate(op.getInput(), moved(at, column)).values;
}

Chunk EpilogueEmitter::evaluateRMSNorm(RMSNormOp op, const Position &at) {
  Value inverse = rowScalars.lookup(op);
  Chunk input = evaluate(op.getInput(), at).values;
  Chunk gain = evaluate(op.getGain(), at).values;
  Chunk results;
  for (auto [x, g] : llvm::zip(input, gain))
    results.push_back(b.fmul(b.fmul(x, inverse), g));
  return results;
}

/// x / (1 + exp(-x)): 0 times infinity does not occur, as exp2 gives infinity
/// and its reciprocal 0 before x does.
static Value silu(CudaBuilder &b, Value x) {
  Value power = b.exp2(b.fmul(x, -kLog2E));
  return b.fmul(x, b.reciprocal(b.fadd(power, b.f32(1.0))));
}

/// x/2 (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3).
static Value geluTanh(CudaBuilder &b, Value x) {
  constexpr double sqrt2OverPi = 0.7978845608028654;
  Value square = b.fmul(x, x);
  Value inner = b.fma(square, b.f32(0.044715), b.f32(1.0));
  Value u2 = b.fmul(b.fmul(x, -2 * sqrt2OverPi * kLog2E), inner);
  return b.fmul(x, b.reciprocal(b.fadd(b.exp2(u2), b.f32(1.0))));
}

Chunk EpilogueEmitter::evaluateGatedAct(GatedActOp op, const Position &at) {
  Chunk gate = evaluate(op.getGate(), at).values;
  Chunk up = evaluate(op.getUp(), at).values;
  Chunk results;
  for (auto [g, u] : llvm::zip(gate, up)) {
    Value activated =
        op.getKind() == GateKind::Silu ? silu(b, g) : geluTanh(b, g);
    results.push_back(b.fmul(activated, u));
  }
  return results;
}
