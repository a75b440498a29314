//===- EmitAttention.cpp - attention kernels ------------------------------===//
//
// Walks a tiled attention kernel and emits each op with its state in scratch:
// the tensors that the KV loops carry have no value at this level.
//
//===----------------------------------------------------------------------===//
#include "Attention.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "prefill/Codegen/CPU/AttentionTileTable.h"
#include "prefill/Codegen/CPU/EmitKernels.h"
#include <numbers>

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// Sizes of an attention op in tile form; fails, with an error, on what target
/// cpu has no kernel for.
template <typename OpTy>
FailureOr<AttentionKernelShape> shapeOf(OpTy op, const CpuIsa &isa,
                                        int64_t blockQ, int64_t blockKv) {
  KVCacheType cache = op.getCache().getType();
  AttentionKernelShape shape;
  shape.storedType = cache.getDtype();
  shape.elementType = isa.attentionType(shape.storedType);
  shape.headDimQk = cache.getHeadDimQk();
  shape.headDimV = cache.getHeadDimV();
  shape.numKvHeads = cache.getNumKvHeads();
  shape.group = cast<ShapedType>(op.getQuery().getType()).getDimSize(1) /
                shape.headDimQk / shape.numKvHeads;
  shape.blockQ = blockQ;
  shape.blockKv = blockKv;
  shape.mask = {op.getCausal(), int64_t(op.getSlidingWindow().value_or(0)),
                blockKv};
  shape.scoreScale = op.getScale().convertToDouble() *
                     (op.getBase2() ? 1.0 : std::numbers::log2e);
  if (!shape.storedType.isF32() && !shape.storedType.isBF16() &&
      !shape.storedType.isF16())
    return op.emitOpError("has element type ")
           << shape.storedType
           << "; target cpu has kernels for f32, bf16 and f16";
  if (op.getSoftcap())
    return op.emitOpError("has softcap = ")
           << op.getSoftcap()->convertToDouble()
           << ", which target cpu has no kernel for";
  return shape;
}

class AttentionKernelEmitter {
public:
  AttentionKernelEmitter(KernelABI &abi, const CpuIsa &isa,
                         AttentionKernelShape shape)
      : abi(abi), b(abi.bodyBuilder()),
        context{b, isa, abi, shape, AttentionScratch()} {}

  LogicalResult emit(func::FuncOp tiled, bool online) {
    if (online)
      context.scratch =
          AttentionScratch::allocate(b, abi, context.isa, context.shape);
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
      return emitWorkgroups(forall);
    if (auto loop = dyn_cast<scf::ForOp>(op))
      return emitKVLoop(loop);
    if (auto workgroup = dyn_cast<AttentionWorkgroupOp>(op))
      return emitWorkgroup(workgroup);
    if (auto online = dyn_cast<OnlineAttentionOp>(op))
      return emitKVBlock(online);
    if (auto normalize = dyn_cast<AttentionNormalizeOp>(op)) {
      if (normalize.getTile().empty())
        return op.emitOpError("is not in tile form (run prefill-tile)");
      storeRows(context, rows, abi.flat(normalize.getOut()));
      return success();
    }
    if (auto plain = dyn_cast<MaterializedAttentionOp>(op)) {
      emitMaterialized(context, rows, abi.cache(plain.getCache()),
                       abi.score(plain.getScores()), abi.flat(plain.getQuery()),
                       abi.flat(plain.getOut()));
      return success();
    }
    if (isa<NumSequencesOp>(op)) {
      mapping.map(op.getResult(0), abi.batch().numSeqs);
      return success();
    }
    if (isa<tensor::DimOp>(op)) {
      mapping.map(op.getResult(0), abi.rowsOf(op.getOperand(0)));
      return success();
    }
    // The state before the first key; initRows sets it.
    if (isa<arith::ConstantOp>(op) &&
        isa<RankedTensorType>(op.getResult(0).getType()))
      return success();
    if (isa<arith::ArithDialect>(op.getDialect())) {
      b.clone(op, mapping);
      return success();
    }
    return op.emitError() << "has no form in an attention kernel of target cpu";
  }

  LogicalResult emitWorkgroups(scf::ForallOp forall) {
    if (forall.getRank() != 1 || !forall.isNormalized() ||
        forall.getNumResults() != 0)
      return forall.emitError(
          "a kernel's workgroups are one loop from 0 with step 1");
    LogicalResult result = success();
    b.forLoop(abi.workgroupBegin, abi.workgroupEnd, 1, [&](Value workgroup) {
      mapping.map(forall.getInductionVar(0), workgroup);
      result = emitBlock(*forall.getBody());
    });
    return result;
  }

  /// A KV loop: what it carries lies in scratch.
  LogicalResult emitKVLoop(scf::ForOp loop) {
    if (!matchPattern(loop.getStep(), m_One()))
      return loop.emitError("a KV loop has step 1");
    LogicalResult result = success();
    b.forLoop(mapping.lookup(loop.getLowerBound()),
              mapping.lookup(loop.getUpperBound()), 1, [&](Value block) {
                mapping.map(loop.getInductionVar(), block);
                result = emitBlock(*loop.getBody());
              });
    return result;
  }

  /// Finds the workgroup's rows: sequences have ceildiv(seqlen_q, block_q)
  /// tiles each.
  LogicalResult emitWorkgroup(AttentionWorkgroupOp op) {
    const BatchView &batch = abi.batch();
    int64_t blockQ = op.getBlockQ();
    Value workgroup = mapping.lookup(op.getWorkgroup());
    Value kvHead = b.remainder(workgroup, op.getNumKvHeads());
    Value tile = b.divide(workgroup, op.getNumKvHeads());
    auto start = [&](Value sequence) {
      return b.toIndex(
          memref::LoadOp::create(b, batch.cuSeqlens, ValueRange{sequence}));
    };
    Value zero = b.index(0);
    // Carried: tiles to go (out of reach once found), sequence, its tiles
    // behind ours, seqlen_q, seqlen_kv.
    Value found = b.index(std::numeric_limits<int64_t>::max());
    SmallVector<Value> place = b.forLoop(
        zero, batch.numSeqs, 1, {tile, zero, zero, zero, zero},
        [&](Value sequence, ValueRange carried) -> SmallVector<Value> {
          Value seqlenQ = b.sub(start(b.add(sequence, 1)), start(sequence));
          Value seqlenKv = b.toIndex(
              memref::LoadOp::create(b, batch.kvLens, ValueRange{sequence}));
          Value tiles = b.ceilDivide(seqlenQ, blockQ);
          Value here = b.compare(arith::CmpIPredicate::slt, carried[0], tiles);
          auto pick = [&](Value ours, Value other) -> Value {
            return arith::SelectOp::create(b, here, ours, other);
          };
          Value toGo = arith::SelectOp::create(
              b, b.compare(arith::CmpIPredicate::eq, carried[0], found), found,
              b.sub(carried[0], tiles));
          // Within a sequence the last tile comes first.
          Value behind = b.sub(b.sub(tiles, b.index(1)), carried[0]);
          return {pick(found, toGo), pick(sequence, carried[1]),
                  pick(behind, carried[2]), pick(seqlenQ, carried[3]),
                  pick(seqlenKv, carried[4])};
        });
    rows.sequence = place[1];
    rows.kvHead = kvHead;
    rows.seqlenQ = place[3];
    rows.seqlenKv = place[4];
    rows.rowBegin = b.mul(place[2], blockQ);
    // Without a sequence (a surplus workgroup) seqlen_q is 0: no rows.
    rows.rowEnd = b.min(b.add(rows.rowBegin, blockQ), rows.seqlenQ);
    rows.batchRow = b.add(start(rows.sequence), rows.rowBegin);
    rows.selected = op.getSelectedRows();
    if (rows.selected)
      narrowToSelectedRows(b, batch, rows);
    mapping.map(op.getSequence(), rows.sequence);
    mapping.map(op.getRowBegin(), rows.rowBegin);
    mapping.map(op.getRowEnd(), rows.rowEnd);
    mapping.map(op.getKvHead(), rows.kvHead);
    mapping.map(op.getSeqlenQ(), rows.seqlenQ);
    mapping.map(op.getSeqlenKv(), rows.seqlenKv);
    if (context.scratch.query) {
      initRows(context, rows);
      packQuery(context, rows, abi.flat(query(op)));
    }
    return success();
  }

  /// The query of the online_attention ops of this workgroup.
  static Value query(AttentionWorkgroupOp op) {
    Value query;
    op->getBlock()->walk(
        [&](OnlineAttentionOp online) { query = online.getQuery(); });
    return query;
  }

  LogicalResult emitKVBlock(OnlineAttentionOp op) {
    AttentionBlock block;
    block.firstKey =
        b.mul(mapping.lookup(op.getTile().back()), context.shape.blockKv);
    block.numKeys =
        b.min(b.sub(rows.seqlenKv, block.firstKey), context.shape.blockKv);
    block.cache = abi.cache(op.getCache());
    auto emitForRows = [&](bool fewRows) {
      context.shape.fewRows = fewRows;
      packBlock(context, rows, block, op.getMask());
      emitBlockForRows(context, rows, block, op.getMask());
    };
    if (!context.shape.isPacked || context.shape.canReadPages()) {
      emitForRows(false);
      return success();
    }
    Value count = b.mul(b.sub(rows.rowEnd, rows.rowBegin), context.shape.group);
    b.ifThenElse(
        b.compare(arith::CmpIPredicate::sle, count,
                  b.index(kAttentionMicroRows)),
        [&] { emitForRows(true); }, [&] { emitForRows(false); });
    return success();
  }

  KernelABI &abi;
  KernelBuilder b;
  AttentionContext context;
  AttentionRows rows;
  IRMapping mapping;
};

} // namespace

/// The argument that takes the output's rows.
static Value outOf(func::FuncOp tiled, MaterializedAttentionOp plain) {
  if (plain)
    return plain.getOut();
  Value out;
  tiled.walk([&](AttentionNormalizeOp op) { out = op.getOut(); });
  return out;
}

LogicalResult prefill::emitAttentionKernel(KernelABI &abi, const CpuIsa &isa,
                                           func::FuncOp tiled) {
  OnlineAttentionOp online;
  MaterializedAttentionOp plain;
  AttentionWorkgroupOp workgroup;
  tiled.walk([&](Operation *op) {
    if (auto found = dyn_cast<OnlineAttentionOp>(op))
      online = found;
    else if (auto found = dyn_cast<MaterializedAttentionOp>(op))
      plain = found;
    else if (auto found = dyn_cast<AttentionWorkgroupOp>(op))
      workgroup = found;
  });
  if (!workgroup || (online && online.getTile().empty()))
    return tiled.emitError() << "kernel " << tiled.getSymName()
                             << " holds attention that is not in tile form "
                                "(run prefill-tile)";
  int64_t blockQ = workgroup.getBlockQ();
  FailureOr<AttentionKernelShape> shape =
      online ? shapeOf(online, isa, blockQ,
                       online.getLoweringConfigAttr().getBlockKv())
             : shapeOf(plain, isa, blockQ, kPanelN);
  if (failed(shape))
    return failure();
  shape->isPacked =
      (online ? online.getCache() : plain.getCache()).getType().getLayout() ==
      KVLayout::PagedVNNI;
  Value query = online ? online.getQuery() : plain.getQuery();
  shape->queryPitch = abi.rowPitch(query);
  shape->outPitch = abi.rowPitch(outOf(tiled, plain));
  if (shape->blockKv % kPanelN != 0)
    return online.emitOpError("has block_kv = ")
           << shape->blockKv << "; target cpu expects a multiple of "
           << kPanelN;
  return AttentionKernelEmitter(abi, isa, *shape)
      .emit(tiled, static_cast<bool>(online));
}
