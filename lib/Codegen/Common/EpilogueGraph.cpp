//===- EpilogueGraph.cpp - what the region of a gemm or rowwise writes ----===//
#include "prefill/Codegen/Common/EpilogueGraph.h"

using namespace mlir;
using namespace mlir::prefill;

static int64_t columnsOf(Value value) {
  return cast<ShapedType>(value.getType()).getDimSize(1);
}

//===----------------------------------------------------------------------===//
// Which columns of the accumulator a value comes from
//===----------------------------------------------------------------------===//

LogicalResult
EpilogueGraph::trace(Value value, std::optional<EpilogueColumns> &space) const {
  space.reset();
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (argument.getOwner() == &body)
      space = EpilogueColumns();
    return success();
  }
  Operation *op = value.getDefiningOp();
  for (Value operand : op->getOperands()) {
    auto tensor = dyn_cast<RankedTensorType>(operand.getType());
    if (!tensor || tensor.getRank() != 2 || isa<EmbedOp, SelectRowsOp>(op))
      continue;
    std::optional<EpilogueColumns> from;
    if (failed(trace(operand, from)))
      return failure();
    if (!from)
      continue;
    if (space && !(*space == *from))
      return op->emitOpError("mixes different columns of the accumulator; "
                             "target ")
             << target << " evaluates columns one tile at a time";
    space = from;
  }
  if (!space)
    return success();
  auto refuseDeinterleaved = [&]() -> LogicalResult {
    return op->emitOpError("of a deinterleaved value cannot be in an "
                           "epilogue on target ")
           << target;
  };
  if (auto split = dyn_cast<SplitOp>(op)) {
    if (space->granularity)
      return refuseDeinterleaved();
    for (unsigned i = 0; i < cast<OpResult>(value).getResultNumber(); ++i)
      space->offset += columnsOf(split->getResult(i));
  } else if (auto deinterleave = dyn_cast<DeinterleaveOp>(op)) {
    if (space->granularity)
      return refuseDeinterleaved();
    space->granularity = deinterleave.getGranularity();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Collecting
//===----------------------------------------------------------------------===//

LogicalResult EpilogueGraph::verifyNode(Operation *op) const {
  if (!isa<AddOp, BiasAddOp, ScaleOp, RowRMSScaleOp, RMSNormOp, GatedActOp,
           SplitOp, DeinterleaveOp, EmbedOp, SelectRowsOp, RopeOp, KVAppendOp,
           RowSumsqOp>(op) &&
      !(isa<CombineSplitsOp>(op) && target == "cuda") &&
      !(isa<QuantizeRowsOp, DequantizeOp>(op) && target == "cpu"))
    return op->emitOpError("has no lowering in an epilogue on target ")
           << target;
  auto requireArgument = [&](Value value, StringRef name) -> LogicalResult {
    auto argument = dyn_cast<BlockArgument>(value);
    if (argument && argument.getOwner() != &body)
      return success();
    return op->emitOpError("computes its ")
           << name << " in the same kernel; target " << target
           << " reads it from memory";
  };
  if (auto select = dyn_cast<SelectRowsOp>(op))
    return requireArgument(select.getInput(), "input");
  if (auto combine = dyn_cast<CombineSplitsOp>(op))
    return failure(failed(requireArgument(combine.getPartials(), "partials")) ||
                   failed(requireArgument(combine.getLse(), "lse")));
  if (auto scale = dyn_cast<RowRMSScaleOp>(op))
    return requireArgument(scale.getSumsq(), "sumsq");
  if (auto dequantize = dyn_cast<DequantizeOp>(op))
    return requireArgument(dequantize.getRowScale(), "row_scale");
  if (auto rope = dyn_cast<RopeOp>(op); rope && !rope.getTable())
    return rope.emitOpError("has no table (run "
                            "prefill-materialize-rope-tables)");
  if (auto norm = dyn_cast<RMSNormOp>(op); norm && !isHeadNode(op)) {
    std::optional<EpilogueColumns> space;
    if (failed(trace(norm.getInput(), space)))
      return failure();
    if (space)
      return op->emitOpError("over whole rows cannot be in a gemm's epilogue; "
                             "a tile holds only a part of the row");
  }
  return success();
}

LogicalResult EpilogueGraph::add(EpilogueSink sink, Operation *op) {
  sink.columns = columnsOf(sink.value);
  std::optional<EpilogueColumns> space;
  if (failed(trace(sink.value, space)))
    return failure();
  if (isa<GemmOp>(body.getParentOp()) && !space)
    return op->emitOpError("writes a value that doesn't depend on the "
                           "accumulator; it belongs in a rowwise");
  if (space)
    sink.space = *space;
  all.push_back(sink);
  return success();
}

LogicalResult EpilogueGraph::collect() {
  using Kind = EpilogueSink::Kind;
  for (Operation &op : body.without_terminator())
    if (failed(verifyNode(&op)))
      return failure();
  Operation *yield = body.getTerminator();
  unsigned nextOut = 0;
  for (Value value : yield->getOperands()) {
    if (auto append = value.getDefiningOp<KVAppendOp>()) {
      if (failed(add({Kind::Key, append.getKey(), append.getCache(), 0, {}},
                     append)) ||
          failed(add({Kind::Value, append.getValue(), append.getCache(), 0, {}},
                     append)))
        return failure();
      continue;
    }
    if (nextOut >= outs.size())
      return yield->emitOpError("yields more tensors than there are buffers");
    Value out = outs[nextOut++];
    if (auto sumsq = value.getDefiningOp<RowSumsqOp>()) {
      if (failed(
              add({Kind::SumOfSquares, sumsq.getInput(), out, 0, {}}, sumsq)))
        return failure();
      continue;
    }
    if (auto quantize = value.getDefiningOp<QuantizeRowsOp>()) {
      Kind kind =
          value == quantize.getScale() ? Kind::RowScale : Kind::Quantized;
      if (failed(add({kind, quantize.getQuantized(), out, 0, {}}, quantize)))
        return failure();
      continue;
    }
    if (failed(add({Kind::Buffer, value, out, 0, {}}, yield)))
      return failure();
  }
  return success();
}

SmallVector<SmallVector<EpilogueSink>> EpilogueGraph::groups() const {
  SmallVector<SmallVector<EpilogueSink>> groups;
  for (const EpilogueSink &sink : all) {
    auto group =
        llvm::find_if(groups, [&](const SmallVector<EpilogueSink> &group) {
          return group.front().space == sink.space &&
                 group.front().columns == sink.columns;
        });
    if (group == groups.end())
      groups.push_back({sink});
    else
      group->push_back(sink);
  }
  return groups;
}

SmallVector<Operation *>
EpilogueGraph::ancestors(ArrayRef<EpilogueSink> sinks) const {
  DenseSet<Operation *> needed;
  SmallVector<Value> work;
  for (const EpilogueSink &sink : sinks)
    work.push_back(sink.value);
  while (!work.empty()) {
    Operation *op = work.pop_back_val().getDefiningOp();
    if (op && needed.insert(op).second)
      llvm::append_range(work, op->getOperands());
  }
  SmallVector<Operation *> ordered;
  for (Operation &op : body)
    if (needed.contains(&op))
      ordered.push_back(&op);
  return ordered;
}

//===----------------------------------------------------------------------===//
// Heads
//===----------------------------------------------------------------------===//

bool EpilogueGraph::isHeadNode(Operation *op) {
  if (isa<RopeOp>(op))
    return true;
  auto norm = dyn_cast<RMSNormOp>(op);
  return norm && norm.getHeadDim();
}

int64_t EpilogueGraph::headDimOf(Operation *op) {
  if (auto rope = dyn_cast<RopeOp>(op))
    return rope.getHeadDim();
  return *cast<RMSNormOp>(op).getHeadDim();
}

int64_t EpilogueGraph::cacheHeadDim(const EpilogueSink &sink) {
  auto cache = cast<KVCacheType>(sink.target.getType());
  return sink.kind == EpilogueSink::Kind::Key ? cache.getHeadDimQk()
                                              : cache.getHeadDimV();
}

LogicalResult EpilogueGraph::verifyHeadNode(Operation *op,
                                            int64_t width) const {
  int64_t headDim = headDimOf(op);
  int64_t columns = columnsOf(op->getResult(0));
  if (headDim < 1 || columns % headDim != 0)
    return op->emitOpError("has head_dim = ")
           << headDim << ", which doesn't divide its " << columns << " columns";
  if (width % headDim != 0)
    return op->emitOpError("has head_dim = ")
           << headDim << " in a tile of block_n = " << width
           << " columns; block_n must be a multiple of it on target " << target;
  auto rope = dyn_cast<RopeOp>(op);
  if (rope && rope.getRope().getRotaryDim() > headDim)
    return rope.emitOpError("has rotary_dim = ")
           << rope.getRope().getRotaryDim() << " but head_dim = " << headDim;
  return success();
}

LogicalResult EpilogueGraph::verifyTiles(ArrayRef<EpilogueSink> sinks,
                                         int64_t width) const {
  using Kind = EpilogueSink::Kind;
  for (Operation *op : ancestors(sinks))
    if (isHeadNode(op) && failed(verifyHeadNode(op, width)))
      return failure();
  for (const EpilogueSink &sink : sinks) {
    if (sink.kind != Kind::Key && sink.kind != Kind::Value)
      continue;
    int64_t headDim = cacheHeadDim(sink);
    if (width % headDim != 0)
      return body.getParentOp()->emitOpError("writes a cache of head_dim = ")
             << headDim << " with block_n = " << width
             << "; block_n must be a multiple of it";
  }
  return success();
}
