//===- TileAttention.cpp - attention kernels to tiles ---------------------===//
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "prefill/Analysis/AttentionSplits.h"
#include "prefill/Analysis/IndexArithmetic.h"
#include "prefill/Codegen/Common/KernelBuilder.h"
#include "prefill/Conversion/KernelTiling.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// A workgroup's part of a kernel, between the kernel's arguments and the tiles
/// that it computes.
struct WorkgroupTile {
  AttentionWorkgroupOp workgroup;
  SmallVector<Value> rows; // sequence, row_begin, row_end, kv_head
  int64_t numSplits = 1;
  Value split; // null without splits
};

/// The workgroup loop of an attention kernel; the builder then stands in its
/// body. The splits of a tile of rows and a KV head are neighbours.
WorkgroupTile createAttentionLoop(KernelBuilder &b, func::FuncOp kernel,
                                  Value query, KVCacheType cache, Value batch,
                                  int64_t blockQ, UnitAttr selectedRows,
                                  int64_t numSplits = 1) {
  int64_t numKvHeads = cache.getNumKvHeads();
  Value rows = tensor::DimOp::create(b, query, b.index(0));
  // Every sequence may end in a tile of its own.
  Value tiles = b.add(b.ceilDivide(rows, blockQ),
                      NumSequencesOp::create(b, b.getIndexType(), batch));
  scf::ForallOp loop =
      createWorkgroupLoop(b, b.getLoc(), b.mul(tiles, numKvHeads * numSplits));
  setGrid(kernel, RowDomain::Tokens, blockQ, /*plusSequences=*/true,
          numKvHeads * numSplits);
  Value number = loop.getInductionVar(0), split;
  if (numSplits > 1) {
    split = b.remainder(number, numSplits);
    number = b.divide(number, numSplits);
  }
  Type index = b.getIndexType();
  auto workgroup = AttentionWorkgroupOp::create(
      b, SmallVector<Type>(6, index), number, batch,
      b.getI64IntegerAttr(blockQ), b.getI64IntegerAttr(numKvHeads),
      selectedRows);
  return {workgroup,
          {workgroup.getSequence(), workgroup.getRowBegin(),
           workgroup.getRowEnd(), workgroup.getKvHead()},
          numSplits,
          split};
}

/// The workgroup's KV blocks, of any row: those of its sequence or its split.
std::pair<Value, Value> allBlocks(KernelBuilder &b, WorkgroupTile tile,
                                  int64_t blockKv) {
  Value seqlenKv = tile.workgroup.getSeqlenKv();
  Value zero = b.index(0), end = b.ceilDivide(seqlenKv, blockKv);
  if (!tile.split)
    return {zero, end};
  IndexArithmetic arith{b, b.getLoc()};
  KVBlockRange<Value> range = splitBlockRange(
      arith, KVBlockRange<Value>{zero, zero, end, end},
      splitKeys(arith, tile.numSplits, seqlenKv, tile.split), blockKv);
  return {range.begin, range.end};
}

/// The loop over all KV blocks of the workgroup, masks in each.
scf::ForOp createKVLoop(KernelBuilder &b, OnlineAttentionOp online,
                        WorkgroupTile tile, int64_t group) {
  LoweringConfigAttr config = online.getLoweringConfigAttr();
  auto accumulator = RankedTensorType::get(
      {config.getBlockM(), group * online.getCache().getType().getHeadDimV()},
      b.getF32Type());
  auto statistic =
      RankedTensorType::get({config.getBlockM(), group}, b.getF32Type());
  auto splat = [&](RankedTensorType type, float value) -> Value {
    return arith::ConstantOp::create(b, DenseElementsAttr::get(type, value));
  };
  SmallVector<Value> state{
      splat(accumulator, 0.0f),
      splat(statistic, -std::numeric_limits<float>::infinity()),
      splat(statistic, 0.0f)};
  auto [begin, end] = allBlocks(b, tile, config.getBlockKv());
  auto loop = scf::ForOp::create(b, begin, end, b.index(1), state);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(loop.getBody());
  SmallVector<Value> indices = tile.rows;
  indices.push_back(loop.getInductionVar());
  auto step = OnlineAttentionOp::create(
      b, accumulator, statistic, statistic, online.getQuery(),
      online.getCache(), online.getBatch(), indices, loop.getRegionIterArgs(),
      online.getMaskAttr(), online.getScaleAttr(), online.getCausalAttr(),
      online.getSlidingWindowAttr(), online.getSoftcapAttr(),
      online.getBase2Attr(), /*num_splits=*/IntegerAttr(), config);
  step->setDiscardableAttrs(online->getDiscardableAttrDictionary());
  scf::YieldOp::create(b, step.getResults());
  return loop;
}

/// What ends the whole form `online`: the one op that uses its state; null
/// where there are others or none.
Operation *findEnd(OnlineAttentionOp online) {
  Operation *end = nullptr;
  for (Operation *user : online->getUsers()) {
    if (end && user != end)
      return nullptr;
    end = user;
  }
  auto normalize = dyn_cast_or_null<AttentionNormalizeOp>(end);
  if (normalize && !online.getNumSplits() &&
      normalize.getAccumulator() == online.getAccumulator() &&
      normalize.getRowSum() == online.getRowSum())
    return end;
  auto partial = dyn_cast_or_null<AttentionPartialOp>(end);
  if (partial && online.getNumSplits() == partial.getNumSplits() &&
      partial.getAccumulator() == online.getAccumulator() &&
      partial.getRowMax() == online.getRowMax() &&
      partial.getRowSum() == online.getRowSum())
    return end;
  return nullptr;
}

LogicalResult tileOnline(func::FuncOp kernel, OnlineAttentionOp online,
                         LoweringConfigAttr config) {
  Operation *end = findEnd(online);
  if (!end)
    return online.emitOpError(
        "is tiled only where one prefill.attention_normalize uses it, or with "
        "num_splits one prefill.attention_partial");
  auto normalize = dyn_cast<AttentionNormalizeOp>(end);
  int64_t numSplits = online.getNumSplits().value_or(1);
  if (numSplits > 1 && kSplitAlignment % config.getBlockKv() != 0)
    return online.emitOpError("has num_splits = ")
           << numSplits << " and block_kv = " << config.getBlockKv()
           << ", expected a divisor of " << kSplitAlignment
           << ", where splits begin";
  SmallVector<Value> outs = replaceResultsByBuffers(kernel);
  KernelBuilder b(online.getLoc(), online);
  KVCacheType cache = online.getCache().getType();
  WorkgroupTile tile = createAttentionLoop(
      b, kernel, online.getQuery(), cache, online.getBatch(),
      config.getBlockM(),
      normalize ? normalize.getSelectedRowsAttr() : UnitAttr(), numSplits);
  int64_t numHeads =
      cast<ShapedType>(online.getQuery().getType()).getDimSize(1) /
      cache.getHeadDimQk();
  scf::ForOp loop =
      createKVLoop(b, online, tile, numHeads / cache.getNumKvHeads());
  if (normalize) {
    AttentionNormalizeOp::create(
        b, Type(), loop.getResult(0), loop.getResult(2), online.getBatch(),
        tile.rows, outs.front(), normalize.getSelectedRowsAttr());
  } else {
    SmallVector<Value> indices = tile.rows;
    indices.push_back(tile.split);
    AttentionPartialOp::create(
        b, TypeRange(), loop.getResult(0), loop.getResult(1), loop.getResult(2),
        online.getBatch(), online.getNumSplitsAttr(), indices, outs);
  }
  end->erase();
  online.erase();
  return success();
}

LogicalResult tilePlain(func::FuncOp kernel, AttentionOp attention,
                        LoweringConfigAttr config) {
  if (attention.getNumSplits())
    return attention.emitOpError("has num_splits = ")
           << *attention.getNumSplits()
           << ", which the unfused form does not have (run "
              "prefill-convert-attention-to-online)";
  Value out = replaceResultsByBuffers(kernel).front();
  KernelBuilder b(attention.getLoc(), attention);
  unsigned index = kernel.getNumArguments();
  auto scoreType = MemRefType::get(
      SmallVector<int64_t>(3, ShapedType::kDynamic), b.getF32Type());
  (void)kernel.insertArgument(
      index, scoreType,
      b.getDictionaryAttr(b.getNamedAttr(kScoreAttr, b.getUnitAttr())),
      attention.getLoc());
  WorkgroupTile tile =
      createAttentionLoop(b, kernel, attention.getQuery(),
                          attention.getCache().getType(), attention.getBatch(),
                          config.getBlockM(), attention.getSelectedRowsAttr());
  auto step = MaterializedAttentionOp::create(
      b, attention.getQuery(), attention.getCache(), attention.getBatch(),
      tile.rows, kernel.getArgument(index), out, attention.getScaleAttr(),
      attention.getCausalAttr(), attention.getSlidingWindowAttr(),
      attention.getSoftcapAttr(), attention.getBase2Attr(),
      attention.getSelectedRowsAttr());
  copyLayer(attention, step);
  attention.erase();
  return success();
}

} // namespace

LogicalResult prefill::tileAttention(func::FuncOp kernel,
                                     Operation *attention) {
  auto config = attention->getAttrOfType<LoweringConfigAttr>("lowering_config");
  if (!config)
    return attention->emitOpError("has no lowering_config (run "
                                  "prefill-select-lowering-strategy)");
  if (config.getBlockM() < 1 || config.getBlockKv() < 1)
    return attention->emitOpError("has block_m = ")
           << config.getBlockM() << " and block_kv = " << config.getBlockKv()
           << "; both must be at least 1";
  int64_t numResults = attention->hasAttr("num_splits") ? 2 : 1;
  if (llvm::count_if(kernel.getResultTypes(),
                     llvm::IsaPred<RankedTensorType>) != numResults)
    return attention->emitOpError("stands in kernel ")
           << kernel.getSymName() << ", which does not return "
           << (numResults == 1 ? "one tensor, its result"
                               : "two tensors, its results");
  if (auto online = dyn_cast<OnlineAttentionOp>(attention))
    return tileOnline(kernel, online, config);
  return tilePlain(kernel, cast<AttentionOp>(attention), config);
}
