//===- EpilogueHeads.cpp - nodes that need other columns of a head --------===//
// Their input is written to a row of f32 scratch and changed in place.
//===----------------------------------------------------------------------===//
#include "Epilogue.h"
#include "VectorMemory.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/VectorMath.h"

using namespace mlir;
using namespace mlir::prefill;

void EpilogueEmitter::materialize(Operation *op, const ColumnTile &tile) {
  int64_t headDim = EpilogueGraph::headDimOf(op);
  Value &buffer = headBuffers[op];
  if (!buffer)
    buffer = abi.allocateScratch(b.getF32Type(), tile.width + cpu.lanes);
  Value input = op->getOperand(0);
  forColumns(tile, headDim, {}, [&](const Position &at, ValueRange) {
    storeColumns(b, cpu, evaluate(input, at), buffer,
                 b.sub(at.column, tile.first), at.mask);
    return SmallVector<Value>();
  });
  Value width = b.index(tile.width);
  if (tile.limit % tile.width != 0)
    width = b.min(width, b.sub(b.index(tile.limit), tile.first));
  b.forLoop(b.index(0), width, headDim, [&](Value start) {
    if (auto rope = dyn_cast<RopeOp>(op))
      rotateHead(rope, buffer, start);
    else
      normalizeHead(cast<RMSNormOp>(op), buffer, start);
  });
  materialized[op->getResult(0)] = {buffer, tile.first};
}

void EpilogueEmitter::rotateHead(RopeOp op, Value buffer, Value start) {
  if (op.getRope().getInterleaved())
    rotatePairs(op, buffer, start);
  else
    rotateHalves(op, buffer, start);
}

// Channel i of the first half pairs with i of the second:
// (x1 cos - x2 sin, x2 cos + x1 sin).
void EpilogueEmitter::rotateHalves(RopeOp op, Value buffer, Value start) {
  int64_t half = op.getRope().getRotaryDim() / 2;
  Type element = cast<ShapedType>(op.getType()).getElementType();
  Value table = abi.view(op.getTable());
  Value position = rowScalars.lookup(op);
  forRange(
      b.index(0), b.index(half), half, {}, [&](const Position &at, ValueRange) {
        auto angle = [&](int64_t offset) {
          return loadColumns(b, table, {position, b.add(at.column, offset)},
                             cpu.lanes, at.mask);
        };
        Value cos = angle(0), sin = angle(half);
        Value firstAt = b.add(start, at.column);
        Value secondAt = b.add(firstAt, half);
        Value first = loadColumns(b, buffer, firstAt, cpu.lanes, at.mask);
        Value second = loadColumns(b, buffer, secondAt, cpu.lanes, at.mask);
        Value rotatedFirst =
            arith::SubFOp::create(b, arith::MulFOp::create(b, first, cos),
                                  arith::MulFOp::create(b, second, sin));
        Value rotatedSecond =
            arith::AddFOp::create(b, arith::MulFOp::create(b, second, cos),
                                  arith::MulFOp::create(b, first, sin));
        storeColumns(b, cpu, emitRoundTo(b, cpu, rotatedFirst, element), buffer,
                     firstAt, at.mask);
        storeColumns(b, cpu, emitRoundTo(b, cpu, rotatedSecond, element),
                     buffer, secondAt, at.mask);
        return SmallVector<Value>();
      });
}

// Channels 2i and 2i + 1 are a pair: each lane needs its neighbour, and every
// angle serves two lanes.
void EpilogueEmitter::rotatePairs(RopeOp op, Value buffer, Value start) {
  int64_t rotaryDim = op.getRope().getRotaryDim(), half = rotaryDim / 2;
  Type element = cast<ShapedType>(op.getType()).getElementType();
  Value table = abi.view(op.getTable());
  Value position = rowScalars.lookup(op);
  SmallVector<int64_t> twice, neighbour;
  SmallVector<float> sign;
  for (int64_t lane = 0; lane < cpu.lanes; ++lane) {
    twice.push_back(lane / 2);
    neighbour.push_back(lane ^ 1);
    sign.push_back(lane % 2 ? 1.0f : -1.0f);
  }
  Value signs = arith::ConstantOp::create(
      b, DenseElementsAttr::get(b.vectorF32(cpu.lanes), ArrayRef<float>(sign)));
  int64_t angleLanes = cpu.lanes / 2;
  forRange(b.index(0), b.index(rotaryDim), rotaryDim, {},
           [&](const Position &at, ValueRange) {
             Value pair = b.divide(at.column, 2);
             Value angleMask;
             if (at.mask)
               angleMask = vector::CreateMaskOp::create(
                   b, VectorType::get({angleLanes}, b.getI1Type()),
                   ValueRange{b.sub(b.index(half), pair)});
             auto angle = [&](int64_t offset) -> Value {
               Value angles =
                   loadColumns(b, table, {position, b.add(pair, offset)},
                               angleLanes, angleMask);
               return vector::ShuffleOp::create(b, angles, angles, twice);
             };
             Value cos = angle(0);
             Value sin = arith::MulFOp::create(b, angle(half), signs);
             Value index = b.add(start, at.column);
             Value x = loadColumns(b, buffer, index, cpu.lanes, at.mask);
             Value partner = vector::ShuffleOp::create(b, x, x, neighbour);
             Value rotated =
                 arith::AddFOp::create(b, arith::MulFOp::create(b, x, cos),
                                       arith::MulFOp::create(b, partner, sin));
             storeColumns(b, cpu, emitRoundTo(b, cpu, rotated, element), buffer,
                          index, at.mask);
             return SmallVector<Value>();
           });
}

void EpilogueEmitter::normalizeHead(RMSNormOp op, Value buffer, Value start) {
  int64_t headDim = *op.getHeadDim();
  Type element = cast<ShapedType>(op.getType()).getElementType();
  Value zero = b.splatF32(0.0, cpu.lanes);
  Value squares = forRange(
      b.index(0), b.index(headDim), headDim, {zero},
      [&](const Position &at, ValueRange carried) {
        // Masked lanes read as 0.
        Value x =
            loadColumns(b, buffer, b.add(start, at.column), cpu.lanes, at.mask);
        return SmallVector<Value>{vector::FMAOp::create(b, x, x, carried[0])};
      })[0];
  Value mean =
      arith::DivFOp::create(b, sumLanes(b, squares), b.f32(double(headDim)));
  Value inverse = broadcast(emitReciprocalSqrt(
      b, arith::AddFOp::create(b, mean, b.f32(op.getEps().convertToDouble()))));
  Value gain = abi.view(op.getGain());
  forRange(b.index(0), b.index(headDim), headDim, {},
           [&](const Position &at, ValueRange) {
             Value index = b.add(start, at.column);
             Value x = loadColumns(b, buffer, index, cpu.lanes, at.mask);
             Value g = loadColumns(b, gain, at.column, cpu.lanes, at.mask);
             Value scaled = arith::MulFOp::create(
                 b, arith::MulFOp::create(b, x, inverse), g);
             storeColumns(b, cpu, emitRoundTo(b, cpu, scaled, element), buffer,
                          index, at.mask);
             return SmallVector<Value>();
           });
}
