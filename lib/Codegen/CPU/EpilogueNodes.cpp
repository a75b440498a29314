//===- EpilogueNodes.cpp - elementwise nodes of an epilogue ---------------===//
#include "Epilogue.h"
#include "VectorMemory.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/VectorMath.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::prefill;

Value EpilogueEmitter::broadcast(Value scalar) {
  return vector::BroadcastOp::create(b, b.vectorF32(cpu.lanes), scalar);
}

EpilogueEmitter::Position EpilogueEmitter::moved(const Position &at,
                                                 Value column) {
  Position to = at;
  to.column = column;
  return to;
}

Value EpilogueEmitter::evaluate(Value value, const Position &at) {
  Value &known = evaluated[{value, at.column}];
  if (known)
    return known;
  Value result = evaluateUncached(value, at);
  // Intermediates are f32; a narrower type is a rounding point. Leaves of that
  // type are exact already.
  Operation *op = value.getDefiningOp();
  if (op && !isa<EmbedOp, SelectRowsOp, SplitOp, DeinterleaveOp>(op))
    result = emitRoundTo(b, cpu, result,
                         cast<ShapedType>(value.getType()).getElementType());
  // `known` may have moved while operands were evaluated.
  evaluated[{value, at.column}] = result;
  return result;
}

Value EpilogueEmitter::evaluateUncached(Value value, const Position &at) {
  if (auto found = materialized.find(value); found != materialized.end()) {
    auto [buffer, first] = found->second;
    // The buffer is longer than the tile: lanes past it read without a mask.
    return loadColumns(b, buffer, b.sub(at.column, first), cpu.lanes);
  }
  if (auto argument = dyn_cast<BlockArgument>(value))
    return argument.getOwner() == &body ? evaluateAccumulator(at)
                                        : evaluateLeaf(value, row, at);
  return llvm::TypeSwitch<Operation *, Value>(value.getDefiningOp())
      .Case([&](AddOp op) -> Value {
        return arith::AddFOp::create(b, evaluate(op.getLhs(), at),
                                     evaluate(op.getRhs(), at));
      })
      .Case([&](BiasAddOp op) -> Value {
        return arith::AddFOp::create(b, evaluate(op.getInput(), at),
                                     evaluate(op.getBias(), at));
      })
      .Case([&](ScaleOp op) -> Value {
        return arith::MulFOp::create(
            b, evaluate(op.getInput(), at),
            b.splatF32(op.getFactor().convertToDouble(), cpu.lanes));
      })
      .Case([&](RowRMSScaleOp op) -> Value {
        return arith::MulFOp::create(b, evaluate(op.getInput(), at),
                                     broadcast(rowScalars.lookup(op)));
      })
      .Case([&](DequantizeOp op) -> Value {
        Value scale = arith::MulFOp::create(b, broadcast(rowScalars.lookup(op)),
                                            evaluate(op.getColumnScale(), at));
        return arith::MulFOp::create(b, evaluate(op.getInput(), at), scale);
      })
      .Case([&](RMSNormOp op) { return evaluateRMSNorm(op, at); })
      .Case([&](GatedActOp op) { return evaluateGatedAct(op, at); })
      .Case([&](SplitOp op) {
        return evaluateSplit(op, cast<OpResult>(value), at);
      })
      .Case([&](DeinterleaveOp op) {
        return evaluateDeinterleave(op, cast<OpResult>(value), at);
      })
      .Case([&](EmbedOp op) {
        return evaluateLeaf(op.getTable(), rowScalars.lookup(op), at);
      })
      .Case([&](SelectRowsOp op) {
        return evaluateLeaf(op.getInput(), rowScalars.lookup(op), at);
      });
}

Value EpilogueEmitter::evaluateLeaf(Value argument, Value row,
                                    const Position &at) {
  SmallVector<Value> indices;
  if (cast<ShapedType>(argument.getType()).getRank() == 2)
    indices.push_back(row);
  indices.push_back(at.column);
  return loadColumns(b, abi.view(argument), indices, cpu.lanes, at.mask);
}

Value EpilogueEmitter::evaluateAccumulator(const Position &at) {
  Value rowOffset =
      b.mul(b.sub(row, accumulators.firstRow), accumulators.pitch);
  Value column = b.sub(at.column, accumulators.firstColumn);
  // The pitch leaves room for a vector past the last column.
  Value place = b.add(rowOffset, column);
  if (cast<MemRefType>(accumulators.buffer.getType()).getElementType().isF32())
    return loadColumns(b, accumulators.buffer, place, cpu.lanes);
  auto ints = VectorType::get({cpu.lanes}, b.getI32Type());
  Value sums = vector::LoadOp::create(b, ints, accumulators.buffer, place);
  if (accumulators.bias)
    sums = arith::SubIOp::create(
        b, sums, vector::LoadOp::create(b, ints, accumulators.bias, column));
  return arith::SIToFPOp::create(b, b.vectorF32(cpu.lanes), sums);
}

Value EpilogueEmitter::evaluateSplit(SplitOp op, OpResult result,
                                     const Position &at) {
  int64_t offset = 0;
  for (unsigned i = 0; i < result.getResultNumber(); ++i)
    offset += cast<ShapedType>(op->getResultTypes()[i]).getDimSize(1);
  return evaluate(op.getInput(), moved(at, b.add(at.column, offset)));
}

Value EpilogueEmitter::evaluateDeinterleave(DeinterleaveOp op, OpResult result,
                                            const Position &at) {
  int64_t granularity = op.getGranularity();
  Value run = b.divide(at.column, granularity);
  Value column =
      b.add(b.mul(run, 2 * granularity), b.remainder(at.column, granularity));
  if (result.getResultNumber() == 1)
    column = b.add(column, granularity);
  return evaluate(op.getInput(), moved(at, column));
}

Value EpilogueEmitter::evaluateRMSNorm(RMSNormOp op, const Position &at) {
  Value normalized = arith::MulFOp::create(b, evaluate(op.getInput(), at),
                                           broadcast(rowScalars.lookup(op)));
  return arith::MulFOp::create(b, normalized, evaluate(op.getGain(), at));
}

Value EpilogueEmitter::evaluateGatedAct(GatedActOp op, const Position &at) {
  Value gate = evaluate(op.getGate(), at);
  Value activated = op.getKind() == GateKind::Silu ? emitSilu(b, gate)
                                                   : emitGeluTanh(b, gate);
  return arith::MulFOp::create(b, activated, evaluate(op.getUp(), at));
}
