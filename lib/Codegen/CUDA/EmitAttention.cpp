//===- EmitAttention.cpp - attention kernels ------------------------------===//
//
// Walks a tiled attention kernel. The tensors that its KV loops carry become
// registers; the loops share one ring of stages, whose copies run ahead over
// the blocks of all of them.
//
//===----------------------------------------------------------------------===//
#include "Attention.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "prefill/Codegen/CUDA/EmitKernels.h"
#include <numbers>

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// Sizes of an attention op in tile form; fails, with an error, on what target
/// cuda has no kernel for.
template <typename OpTy>
FailureOr<AttentionKernelShape> shapeOf(OpTy op, const CudaChip &chip,
                                        int64_t blockQ, int64_t blockKv) {
  KVCacheType cache = op.getCache().getType();
  AttentionKernelShape shape;
  shape.elementType = cache.getDtype();
  shape.heads.headDimQk = cache.getHeadDimQk();
  shape.heads.headDimV = cache.getHeadDimV();
  shape.heads.numKvHeads = cache.getNumKvHeads();
  shape.heads.group = cast<ShapedType>(op.getQuery().getType()).getDimSize(1) /
                      cache.getHeadDimQk() / cache.getNumKvHeads();
  shape.heads.causal = op.getCausal();
  shape.heads.slidingWindow = op.getSlidingWindow().value_or(0);
  shape.blockQ = blockQ;
  shape.blockKv = blockKv;
  shape.mask = {shape.heads.causal, shape.heads.slidingWindow, blockKv};
  shape.scoreScale = op.getScale().convertToDouble() *
                     (op.getBase2() ? 1.0 : std::numbers::log2e);
  if (!shape.elementType.isF16() && !shape.elementType.isBF16())
    return op.emitOpError("has element type ")
           << shape.elementType << "; target cuda has kernels for f16 and bf16";
  if (op.getSoftcap())
    return op.emitOpError("has softcap = ")
           << op.getSoftcap()->convertToDouble()
           << ", which target cuda has no kernel for";
  for (int64_t dim : {shape.heads.headDimQk, shape.heads.headDimV})
    if (dim % kChunkElements != 0 || dim > kMaxAttentionHeadDim)
      return op.emitOpError("has head_dim = ")
             << dim << "; target cuda has kernels for multiples of 8 up to "
             << kMaxAttentionHeadDim;
  if constexpr (std::is_same_v<OpTy, OnlineAttentionOp>) {
    llvm::Expected<AttentionLayout> layout =
        attentionLayout(chip, shape.heads, {blockQ, blockKv});
    if (!layout)
      return op.emitOpError("has no kernel: ")
             << llvm::toString(layout.takeError());
    shape.layout = *layout;
  }
  return shape;
}

class AttentionKernelEmitter {
public:
  AttentionKernelEmitter(KernelFrame &frame, AttentionKernelShape shape,
                         AttentionPartialOp partial)
      : frame(frame), b(frame.bodyBuilder()), shape(std::move(shape)),
        partial(partial) {}

  LogicalResult emit(func::FuncOp tiled, Value query, Value cache) {
    this->query = query;
    this->cache = cache;
    return emitBlock(tiled.getBody().front());
  }

private:
  LogicalResult emitBlock(Block &block) {
    for (Operation &op : block.without_terminator()) {
      b.setLoc(op.getLoc());
      if (failed(emitOp(op)))
        return failure();
    }
    return success();
  }

  LogicalResult emitOp(Operation &op) {
    if (auto forall = dyn_cast<scf::ForallOp>(op))
      return emitWorkgroup(forall);
    if (auto loop = dyn_cast<scf::ForOp>(op))
      return emitKVLoop(loop);
    if (auto workgroup = dyn_cast<AttentionWorkgroupOp>(op))
      return emitRows(workgroup);
    if (auto normalize = dyn_cast<AttentionNormalizeOp>(op)) {
      if (normalize.getTile().empty())
        return op.emitOpError("is not in tile form (run prefill-tile)");
      return emitOutput(normalize);
    }
    if (auto partial = dyn_cast<AttentionPartialOp>(op)) {
      if (partial.getTile().empty())
        return op.emitOpError("is not in tile form (run prefill-tile)");
      return emitOutput(partial);
    }
    if (auto plain = dyn_cast<MaterializedAttentionOp>(op)) {
      emitMaterializedAttention(b, shape, rows, frame.batch(),
                                frame.cache(plain.getCache()),
                                frame.scores(plain.getScores()),
                                frame.tensor(plain.getQuery()).pointer,
                                frame.tensor(plain.getOut()).pointer);
      return success();
    }
    if (isa<NumSequencesOp>(op)) {
      mapping.map(op.getResult(0), frame.batch().numSeqs);
      return success();
    }
    if (isa<tensor::DimOp>(op)) {
      mapping.map(op.getResult(0), frame.tensor(op.getOperand(0)).rows);
      return success();
    }
    // The state before the first key: AttentionState::initial.
    if (isa<arith::ConstantOp>(op) &&
        isa<RankedTensorType>(op.getResult(0).getType()))
      return success();
    if (isa<arith::ArithDialect>(op.getDialect())) {
      b.clone(op, mapping);
      return success();
    }
    return op.emitError()
           << "has no form in an attention kernel of target cuda";
  }

  LogicalResult emitWorkgroup(scf::ForallOp forall) {
    if (forall.getRank() != 1 || !forall.isNormalized() ||
        forall.getNumResults() != 0)
      return forall.emitError(
          "a kernel's workgroups are one loop from 0 with step 1");
    for (auto loop : forall.getBody()->getOps<scf::ForOp>()) {
      if (!firstLoop)
        firstLoop = loop;
      lastLoop = loop;
    }
    number = forall.getInductionVar(0);
    mapping.map(number, b.toIndex(b.blockId()));
    OpBuilder::InsertionGuard guard(b);
    return emitBlock(*forall.getBody());
  }

  /// Finds the workgroup's rows; what follows is for workgroups that have any.
  LogicalResult emitRows(AttentionWorkgroupOp op) {
    if (op.getSelectedRows())
      return op.emitOpError("has selected_rows, which target cuda has no "
                            "kernel for (leave out "
                            "prefill-hoist-row-selection)");
    lane = b.lane();
    Value tile = op.getWorkgroup() == number
                     ? b.blockId()
                     : b.toI32(mapping.lookup(op.getWorkgroup()));
    rows = emitAttentionRows(b, frame.batch(), tile, shape);
    auto branch = scf::IfOp::create(b, b.less(b.i32(0), rows.count),
                                    /*withElseRegion=*/false);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
    rows.seqlenKv = b.load(
        b.getI32Type(),
        b.elementPointer(frame.batch().kvLens, rows.sequence, b.getI32Type()),
        "attention.load_kv_lens");
    rows.endKey = rows.seqlenKv;
    if (firstLoop != lastLoop) {
      Value lastRow = b.sub(b.add(rows.rowBegin, rows.count), b.i32(1));
      rows.endKey =
          b.min(emitVisibleKeys(b, shape, rows, lastRow).end, rows.seqlenKv);
    }
    if (partial)
      emitSplit();
    workgroup = op;
    mapRows(mapping, rows);
    return success();
  }

  /// Cuts the keys to those of the split. A tile that sees none of them is done
  /// at once; what follows is for the others.
  void emitSplit() {
    rows.split = b.toI32(mapping.lookup(partial.getTile().back()));
    KeyRange<Value> keys = emitSplitKeys(b, shape, rows);
    rows.endKey = b.min(rows.endKey, keys.end);
    Value firstKey = keys.begin;
    if (shape.mask.slidingWindow && firstLoop != lastLoop)
      firstKey =
          b.max(firstKey, emitVisibleKeys(b, shape, rows, rows.rowBegin).begin);
    auto branch = scf::IfOp::create(b, b.less(firstKey, rows.endKey),
                                    /*withElseRegion=*/true);
    b.setInsertionPoint(branch.elseBlock()->getTerminator());
    emitEmptyPartial(b, shape, rows, partialBuffers());
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
  }

  AttentionPartial partialBuffers() {
    return {frame.tensor(partial.getOuts()[0]).pointer,
            frame.tensor(partial.getOuts()[1]).pointer};
  }

  /// Results of the workgroup op that are `rows`, and the split.
  void mapRows(IRMapping &into, const AttentionRows &rows) {
    into.map(workgroup.getSequence(), b.toIndex(rows.sequence));
    into.map(workgroup.getRowBegin(), b.toIndex(rows.rowBegin));
    into.map(workgroup.getRowEnd(),
             b.toIndex(b.add(rows.rowBegin, rows.count)));
    into.map(workgroup.getKvHead(), b.toIndex(rows.kvHead));
    into.map(workgroup.getSeqlenQ(), b.toIndex(rows.seqlenQ));
    into.map(workgroup.getSeqlenKv(), b.toIndex(rows.seqlenKv));
    if (partial)
      into.map(partial.getTile().back(), b.toIndex(rows.split));
  }

  /// `value` of the tiled kernel, with the arithmetic that leads from the
  /// workgroup's rows to it done again at the builder's place.
  Value recompute(Value value, IRMapping &fresh) {
    if (Value known = fresh.lookupOrNull(value))
      return known;
    Operation *op = value.getDefiningOp();
    if (!op || !isa<arith::ArithDialect>(op->getDialect()))
      return mapping.lookup(value);
    for (Value operand : op->getOperands())
      fresh.map(operand, recompute(operand, fresh));
    b.clone(*op, fresh);
    return fresh.lookup(value);
  }

  /// Starts the ring: query and the first blocks.
  void emitPrologue() {
    const AttentionLayout &layout = shape.layout;
    Value firstBlock = b.toI32(mapping.lookup(firstLoop.getLowerBound()));
    int64_t window = frame.shared.allocate(layout.sharedBytes());
    shared = frame.sharedPointer(b, window);
    warpRow = b.mul(b.warp(), layout.fragments * kMmaM);
    queryShared = b.pointer(shared, layout.queryOffset());
    emitQueryCopy(b, shape, rows, frame.tensor(query).pointer, queryShared);
    b.commitGroup();
    copy.emplace(b, shape, rows, frame.batch(), frame.cache(cache));
    for (int64_t stage = 0; stage + 1 < layout.stages; ++stage) {
      Value block = b.add(firstBlock, stage);
      b.ifThen(isVisited(block), [&] {
        issueCopies(block, copy->loadPages(b, block),
                    b.i32(stage * layout.stageBytes()));
      });
      b.commitGroup();
    }
    // Of the block that the first step issues.
    pages = SmallVector<Value>(copy->numPages(), b.i32(0));
    if (!pages.empty()) {
      auto branch = scf::IfOp::create(b, ValueRange(pages).getTypes(),
                                      isVisited(firstBlock),
                                      /*addThenBlock=*/true,
                                      /*addElseBlock=*/true);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(branch.elseBlock());
      scf::YieldOp::create(b, pages);
      b.setInsertionPointToEnd(branch.thenBlock());
      scf::YieldOp::create(
          b, copy->loadPages(b, b.add(firstBlock, layout.stages - 1)));
      pages = SmallVector<Value>(branch.getResults());
    }
    spreadRows = rows.spread(b, lane);
    stage = b.i32(0);
    mainloop.emplace(b, shape, lane, warpRow);
    if (layout.queryInRegisters) {
      b.waitGroup(layout.stages - 1, "attention.wait_q");
      b.barrier("attention.query_ready");
      mainloop->loadQuery(b, queryShared);
    }
    state = AttentionState::initial(b, shape);
  }

  AttentionRows gatherRows() {
    return AttentionRows::gather(b, spreadRows, bool(partial));
  }

  /// Whether a block behind the first one is visited by any of the loops.
  Value isVisited(Value block) {
    return b.less(b.mul(block, shape.blockKv), rows.endKey);
  }

  void issueCopies(Value block, ValueRange pages, Value stage) {
    Value keyShared = b.pointer(shared, stage);
    copy->issue(b, block, pages, keyShared,
                b.pointer(keyShared, shape.layout.keyBytes));
  }

  LogicalResult emitKVLoop(scf::ForOp loop) {
    auto ops = loop.getBody()->without_terminator();
    OnlineAttentionOp online;
    if (llvm::hasSingleElement(ops))
      online = dyn_cast<OnlineAttentionOp>(*ops.begin());
    if (!online || !matchPattern(loop.getStep(), m_One()))
      return loop.emitError(
          "a KV loop has step 1 and holds prefill.online_attention alone");
    if (loop == firstLoop)
      emitPrologue();
    rows = gatherRows();
    IRMapping fresh;
    mapRows(fresh, rows);
    Value begin = b.toI32(recompute(loop.getLowerBound(), fresh));
    Value end = b.toI32(recompute(loop.getUpperBound(), fresh));
    bool hasMask = online.getMask() == BlockMask::Edge;
    std::optional<AttentionMask> mask;
    if (hasMask)
      mask.emplace(b, shape, rows, lane, warpRow);

    SmallVector<Value> carried = state.pack();
    size_t stateValues = carried.size();
    carried.push_back(stage);
    carried.append(pages);
    auto steps = scf::ForOp::create(b, begin, end, b.i32(1), carried);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(steps.getBody());
      ValueRange arguments = steps.getRegionIterArgs();
      state = AttentionState::unpack(shape, arguments.take_front(stateValues));
      stage = arguments[stateValues];
      pages = SmallVector<Value>(arguments.drop_front(stateValues + 1));
      emitStep(steps.getInductionVar(), mask ? &*mask : nullptr);
      SmallVector<Value> next = state.pack();
      next.push_back(stage);
      next.append(pages);
      scf::YieldOp::create(b, next);
    }
    ValueRange results = steps.getResults();
    state = AttentionState::unpack(shape, results.take_front(stateValues));
    stage = results[stateValues];
    pages = SmallVector<Value>(results.drop_front(stateValues + 1));
    return success();
  }

  /// One KV block. Its copies have been under way for stages - 1 steps.
  void emitStep(Value block, const AttentionMask *mask) {
    const AttentionLayout &layout = shape.layout;
    int64_t lastStage = (layout.stages - 1) * layout.stageBytes();
    b.waitGroup(layout.stages - 2, "attention.wait_kv");
    // All threads' copies of this block are there, and nobody reads the stage
    // of the block before any more: it is the next to be filled.
    b.barrier("attention.stage_ready");
    Value ahead = b.add(block, layout.stages - 1);
    Value free = b.select(b.equal(stage, 0), b.i32(lastStage),
                          b.sub(stage, b.i32(layout.stageBytes())));
    b.ifThen(isVisited(ahead), [&] { issueCopies(ahead, pages, free); });
    b.commitGroup();
    pages = copy->loadPages(b, b.add(ahead, 1));

    Value keyShared = b.pointer(shared, stage);
    // Read again for every block, the query has addresses that would stay in
    // registers if they did not seem to change.
    Value again = b.mul(emitUnknownZero(b, frame.batch()), block);
    SmallVector<Value> scores =
        mainloop->scores(b, b.pointer(queryShared, again), keyShared);
    if (mask)
      mask->apply(b, block, scores);
    SmallVector<Value> probabilities =
        emitOnlineSoftmax(b, shape, mask != nullptr, scores, state);
    mainloop->addValues(b, probabilities, b.pointer(keyShared, layout.keyBytes),
                        state);
    stage = b.select(b.equal(stage, lastStage), b.i32(0),
                     b.add(stage, layout.stageBytes()));
  }

  template <typename OpTy> LogicalResult emitOutput(OpTy op) {
    if (!copy)
      return op.emitOpError("stands behind no KV loop");
    // A tile without a block still has the query's copies under way.
    b.waitGroup(0, "attention.wait_all");
    AttentionRows ending = gatherRows();
    if constexpr (std::is_same_v<OpTy, AttentionNormalizeOp>) {
      emitAttentionOutput(b, shape, ending, frame.batch(), state, shared,
                          frame.tensor(op.getOut()).pointer);
    } else {
      emitAttentionPartial(b, shape, ending, frame.batch(), state,
                           partialBuffers());
    }
    return success();
  }

  KernelFrame &frame;
  CudaBuilder b;
  AttentionKernelShape shape;
  AttentionPartialOp partial; // of splits; null without
  IRMapping mapping;
  Value number; // of the workgroup, in the tiled kernel
  Value query, cache;
  scf::ForOp firstLoop, lastLoop;
  Value lane, warpRow; // of the thread; row of the tile
  AttentionWorkgroupOp workgroup;
  AttentionRows rows; // as they stand at the builder's place
  Value spreadRows;
  Value shared, queryShared;
  std::optional<KVBlockCopy> copy;
  std::optional<AttentionMainloop> mainloop;
  // As they stand at the builder's place.
  AttentionState state;
  Value stage;              // bytes: where the block at hand lies
  SmallVector<Value> pages; // of the block that is issued next
};

} // namespace

LogicalResult prefill::emitAttentionKernel(KernelFrame &frame,
                                           const CudaChip &chip,
                                           func::FuncOp tiled) {
  OnlineAttentionOp online;
  MaterializedAttentionOp plain;
  AttentionWorkgroupOp workgroup;
  AttentionPartialOp partial;
  tiled.walk([&](Operation *op) {
    if (auto found = dyn_cast<OnlineAttentionOp>(op))
      online = found;
    else if (auto found = dyn_cast<MaterializedAttentionOp>(op))
      plain = found;
    else if (auto found = dyn_cast<AttentionWorkgroupOp>(op))
      workgroup = found;
    else if (auto found = dyn_cast<AttentionPartialOp>(op))
      partial = found;
  });
  if (!workgroup || (!online && !plain) || (online && online.getTile().empty()))
    return tiled.emitError() << "kernel " << tiled.getSymName()
                             << " holds attention that is not in tile form "
                                "(run prefill-tile)";
  int64_t blockQ = workgroup.getBlockQ();
  FailureOr<AttentionKernelShape> shape =
      online ? shapeOf(online, chip, blockQ,
                       online.getLoweringConfigAttr().getBlockKv())
             : shapeOf(plain, chip, blockQ, /*blockKv=*/1);
  if (failed(shape))
    return failure();
  if (partial)
    shape->numSplits = partial.getNumSplits();
  frame.blockThreads =
      online ? shape->layout.threads() : kPlainAttentionWarps * kWarpThreads;
  return AttentionKernelEmitter(frame, *shape, partial)
      .emit(tiled, online ? online.getQuery() : plain.getQuery(),
            online ? online.getCache() : plain.getCache());
}
