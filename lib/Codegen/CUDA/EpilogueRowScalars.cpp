//===- EpilogueRowScalars.cpp - nodes that are one value for a row --------===//
#include "Epilogue.h"
#include "prefill/Codegen/CUDA/ChipTable.h"

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::cuda;

void EpilogueEmitter::computeRowScalar(Operation *op) {
  if (rowScalars.contains(op))
    return;
  const CudaBatch &batch = frame.batch();
  Value scalar;
  if (auto scale = dyn_cast<RowRMSScaleOp>(op)) {
    auto prepared = preparedRows.find(op);
    if (prepared == preparedRows.end()) {
      scalar = computeRowRMSScale(scale, row.index);
    } else {
      Value base = frame.sharedPointer(b, prepared->second);
      scalar = b.load(b.getF32Type(),
                      b.elementPointer(base, row.inTile, b.getF32Type()),
                      "epilogue.load_row_scale");
    }
  } else if (auto norm = dyn_cast<RMSNormOp>(op); norm && !norm.getHeadDim()) {
    scalar = computeRMS(norm);
  } else if (isa<EmbedOp>(op)) {
    scalar =
        CudaBatch::loadI32(b, batch.tokens, row.index, "epilogue.load_token");
  } else if (isa<SelectRowsOp>(op)) {
    scalar = CudaBatch::loadI32(b, batch.logitsIndices, row.index,
                                "epilogue.load_logits_index");
  } else if (isa<RopeOp>(op)) {
    scalar = CudaBatch::loadI32(b, batch.positions, row.index,
                                "epilogue.load_position");
  } else {
    return;
  }
  rowScalars[op] = scalar;
}

/// Where the row's keys and values go; slot -1 writes nothing.
void EpilogueEmitter::computeSlot(Value cache) {
  if (slots.contains(cache))
    return;
  Value slot = CudaBatch::loadI64(b, frame.batch().slotMapping, row.index,
                                  "epilogue.load_slot");
  Value valid = b.compare(arith::CmpIPredicate::sge, slot, b.index(0));
  slots[cache] = {valid, frame.cache(cache).slotOffset(b, slot)};
}

/// 1/sqrt(sum of the partials / channels + eps); the partials in index order,
/// four at a time where rows begin at multiples of 16 bytes.
Value EpilogueEmitter::computeRowRMSScale(RowRMSScaleOp op, Value row) {
  const CudaTensor &partials = frame.tensor(op.getSumsq());
  Value first = partials.at(b, row, b.i32(0));
  int64_t step = partials.columns % 4 == 0 ? 4 : 1;
  auto load = [&](Value p) -> SmallVector<Value> {
    Value pointer = b.elementPointer(first, p, b.getF32Type());
    if (step == 4)
      return b.loadFloats(pointer, "epilogue.load_sumsq");
    return {b.load(b.getF32Type(), pointer, "epilogue.load_sumsq")};
  };
  Value sum = b.forLoop(b.i32(0), b.i32(partials.columns), step, {b.f32(0.0)},
                        [&](Value p, ValueRange carried) -> SmallVector<Value> {
                          Value sum = carried[0];
                          for (Value partial : load(p))
                            sum = b.fadd(sum, partial);
                          return {sum};
                        })[0];
  Value mean = b.fmul(sum, 1.0 / double(op.getChannels()));
  return b.rsqrt(b.fadd(mean, b.f32(op.getEps().convertToDouble())));
}

void EpilogueEmitter::prepareRows(int64_t blockM, Value firstRow,
                                  Value rowCount, Value thread,
                                  int64_t threads) {
  for (Operation &op : body) {
    auto scale = dyn_cast<RowRMSScaleOp>(op);
    if (!scale)
      continue;
    int64_t offset = frame.shared.allocate(blockM * 4);
    preparedRows[&op] = offset;
    Value base = frame.sharedPointer(b, offset);
    b.forLoop(thread, b.i32(blockM), threads, [&](Value r) {
      // Rows past the end take the last one's: their results are not stored.
      Value row =
          b.min(b.add(firstRow, b.toIndex(r)), b.sub(rowCount, b.index(1)));
      b.store(computeRowRMSScale(scale, row),
              b.elementPointer(base, r, b.getF32Type()),
              "epilogue.store_row_scale");
    });
  }
}

/// Over all of a row's columns, by the lanes of one warp.
Value EpilogueEmitter::computeRMS(RMSNormOp op) {
  int64_t columns = cast<ShapedType>(op.getType()).getDimSize(1);
  int64_t step = kWarpThreads * kChunkColumns;
  int64_t last = (columns - 1) / kChunkColumns * kChunkColumns;
  Value zero = b.f32(0.0);
  Value squares =
      b.forLoop(b.i32(0), b.i32(columns), step, {zero},
                [&](Value first, ValueRange carried) -> SmallVector<Value> {
                  evaluated.clear();
                  Value own = b.add(first, b.mul(lanes->lane, kChunkColumns));
                  Position at{b.min(own, last), {}};
                  Value sum = carried[0];
                  Chunk input = evaluate(op.getInput(), at).values;
                  for (auto [i, x] : llvm::enumerate(input)) {
                    Value inside = b.less(b.add(own, int64_t(i)), columns);
                    Value counted = b.select(inside, x, zero);
                    sum = b.fma(counted, counted, sum);
                  }
                  evaluated.clear();
                  return {sum};
                })[0];
  Value total = sumOverLanes(squares, kWarpThreads, b.i32(0));
  Value mean = b.fmul(total, 1.0 / double(columns));
  return b.rsqrt(b.fadd(mean, b.f32(op.getEps().convertToDouble())));
}
