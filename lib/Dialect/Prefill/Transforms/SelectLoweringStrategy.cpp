//===- SelectLoweringStrategy.cpp - every compute op gets tiles -----------===//
#include "mlir/Transforms/RegionUtils.h"
#include "prefill/Codegen/CPU/AttentionTileTable.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/CPU/TileTable.h"
#include "prefill/Codegen/Common/PackedWeights.h"
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_SELECTLOWERINGSTRATEGYPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// What an epilogue's nodes demand of the tiles.
struct ColumnDemands {
  SmallVector<int64_t> parts; // widths that no tile may straddle
  int64_t unit = 0;           // head_dim
  int64_t granularity = 0;    // of interleaved columns
};

/// Finds the demands of a region whose widest rows have `columns` columns.
FailureOr<ColumnDemands> collectDemands(Operation *op, Block &body,
                                        int64_t columns) {
  ColumnDemands demands;
  demands.parts = {columns};
  WalkResult result = body.walk([&](Operation *node) {
    auto setUnit = [&](int64_t headDim) {
      if (demands.unit && demands.unit != headDim) {
        node->emitOpError("needs head_dim = ")
            << headDim << " where other nodes of the epilogue have "
            << demands.unit << "; target cpu tiles columns by one head size";
        return WalkResult::interrupt();
      }
      demands.unit = headDim;
      return WalkResult::advance();
    };
    if (auto rope = dyn_cast<RopeOp>(node))
      return setUnit(rope.getHeadDim());
    if (auto norm = dyn_cast<RMSNormOp>(node); norm && norm.getHeadDim())
      return setUnit(*norm.getHeadDim());
    if (auto append = dyn_cast<KVAppendOp>(node)) {
      KVCacheType cache = append.getCache().getType();
      WalkResult set = setUnit(cache.getHeadDimQk());
      return set.wasInterrupted() ? set : setUnit(cache.getHeadDimV());
    }
    if (auto split = dyn_cast<SplitOp>(node); split && isa<GemmOp>(op)) {
      demands.parts = llvm::map_to_vector(
          split.getResults(), [](Value part) { return numColumns(part); });
    } else if (auto deinterleave = dyn_cast<DeinterleaveOp>(node);
               deinterleave && isa<GemmOp>(op)) {
      demands.granularity = deinterleave.getGranularity();
    }
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  return demands;
}

/// A gemm's accumulator width, or the width of a rowwise's widest value.
int64_t columnsOf(Operation *op, Block &body) {
  if (isa<GemmOp>(op))
    return numColumns(body.getArgument(0));
  int64_t columns = 0;
  for (Operation &node : body.without_terminator()) {
    if (isa<RowSumsqOp>(node))
      columns = std::max(columns, numColumns(node.getOperand(0)));
    else if (auto append = dyn_cast<KVAppendOp>(node))
      columns = std::max(columns, numColumns(append.getKey()));
    else
      for (Value result : node.getResults())
        columns = std::max(columns, numColumns(result));
  }
  return columns;
}

class SelectLoweringStrategyPass
    : public mlir::prefill::impl::SelectLoweringStrategyPassBase<
          SelectLoweringStrategyPass> {
public:
  using SelectLoweringStrategyPassBase::SelectLoweringStrategyPassBase;

private:
  void runOnOperation() override {
    if (target != "cpu") {
      getOperation().emitError()
          << "unknown target '" << target << "'; valid are cpu";
      return signalPassFailure();
    }
    sizes = cpuTileSizes({l1, l2, l3}, plain);
    if (gemmBlockM)
      sizes.gemmBlockM = gemmBlockM;
    if (gemmBlockN) {
      llvm::erase_if(sizes.blockN,
                     [&](int64_t width) { return width >= gemmBlockN; });
      sizes.blockN.insert(sizes.blockN.begin(), gemmBlockN);
    }
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal() || function->hasAttr(kKernelAttr))
        continue;
      if (failed(refuse(function)))
        return signalPassFailure();
      makeGemms(function);
      if (!plain)
        fuseFinalNorm(function);
      makeRowwise(function);
      if (failed(configure(function)))
        return signalPassFailure();
    }
  }

  LogicalResult refuse(func::FuncOp function);
  void makeGemms(func::FuncOp function);
  void fuseFinalNorm(func::FuncOp function);
  void makeRowwise(func::FuncOp function);
  LogicalResult configure(func::FuncOp function);
  LogicalResult configureTiles(Operation *op, Block &body, int64_t blockM);
  void configureAttention(AttentionOp attention);
  void setConfig(Operation *op, int64_t blockM, int64_t blockN,
                 int64_t blockKv);
  void configurePasses(GemmOp gemm, int64_t blockM);
  RowDomain domainOf(Operation *op);

  CpuTileSizes sizes;
};

} // namespace

/// What target cpu cannot do, named before anything is changed.
LogicalResult SelectLoweringStrategyPass::refuse(func::FuncOp function) {
  WalkResult result = function.walk([&](Operation *op) {
    if (auto attention = dyn_cast<AttentionOp>(op);
        attention && attention.getSoftcap()) {
      op->emitOpError("has softcap = ")
          << attention.getSoftcap()->convertToDouble()
          << "; target cpu has no kernel for it";
      return WalkResult::interrupt();
    }
    if (auto attention = dyn_cast<AttentionOp>(op)) {
      KVCacheType cache = attention.getCache().getType();
      if (cache.getLayout() == KVLayout::PagedVNNI &&
          cache.getDtype().isF16()) {
        op->emitOpError("has a cache of dtype f16 in layout paged_vnni; target "
                        "cpu has such pages of f32 and bf16 (pass "
                        "--kv-layout=paged_nhd)");
        return WalkResult::interrupt();
      }
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

void SelectLoweringStrategyPass::makeGemms(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
    if (auto linear = dyn_cast<LinearOp>(op)) {
      convertToGemm(linear);
      ++numGemms;
    } else if (auto head = dyn_cast<LMHeadOp>(op)) {
      OpBuilder builder(head);
      GemmOp gemm =
          createGemm(builder, head.getLoc(), head.getInput(), head.getWeight(),
                     head.getType(), [](OpBuilder &, Value acc) {
                       return SmallVector<Value>{acc};
                     });
      copyLayer(head, gemm);
      gemm->setAttr(kNameAttr, builder.getStringAttr("lm_head"));
      head.replaceAllUsesWith(gemm.getResult(0));
      head.erase();
      ++numGemms;
    }
  }
}

/// Moves `ops`, each used only by the next, into one rowwise at the last one's
/// place.
static RowwiseOp wrapInRowwise(ArrayRef<Operation *> ops, StringRef name) {
  Operation *last = ops.back();
  OpBuilder builder(last);
  auto rowwise =
      RowwiseOp::create(builder, last->getLoc(), last->getResultTypes(),
                        ValueRange{}, ValueRange{}, LoweringConfigAttr{});
  copyLayer(last, rowwise);
  rowwise->setAttr(kNameAttr, builder.getStringAttr(name));
  last->replaceAllUsesWith(rowwise);
  Block *body = builder.createBlock(&rowwise.getBody());
  auto yield = YieldOp::create(builder, last->getLoc(), last->getResults());
  for (Operation *op : ops) {
    op->moveBefore(yield);
    for (StringRef attr : {StringRef(kLayerAttr), StringRef(kNameAttr),
                           StringRef(kNotFoldedAttr)})
      op->removeAttr(attr);
  }
  (void)body;
  return rowwise;
}

/// The tail: only rows whose logits are asked for are normalised, in one
/// kernel.
void SelectLoweringStrategyPass::fuseFinalNorm(func::FuncOp function) {
  for (auto norm : llvm::make_early_inc_range(function.getOps<RMSNormOp>())) {
    auto select = norm.getInput().getDefiningOp<SelectRowsOp>();
    if (!select || !select->hasOneUse() || norm.getHeadDim())
      continue;
    wrapInRowwise({select, norm}, "final_norm");
    ++numRowwise;
  }
}

void SelectLoweringStrategyPass::makeRowwise(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
    if (!isa<EmbedOp, RMSNormOp, RopeOp, KVAppendOp, GatedActOp, AddOp, ScaleOp,
             SelectRowsOp, SplitOp, DeinterleaveOp, BiasAddOp, RowSumsqOp,
             RowRMSScaleOp>(op))
      continue;
    StringRef name = op.getName().stripDialect();
    if (auto given = op.getAttrOfType<StringAttr>(kNameAttr))
      name = given;
    wrapInRowwise({&op}, name);
    ++numRowwise;
  }
}

/// Rows that come from select_rows are those of the logits.
RowDomain SelectLoweringStrategyPass::domainOf(Operation *op) {
  bool selects = op->walk([](SelectRowsOp) {
                     return WalkResult::interrupt();
                   }).wasInterrupted();
  if (selects)
    return RowDomain::Logits;
  SetVector<Value> inputs(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), inputs);
  for (Value input : inputs)
    if (Operation *producer = input.getDefiningOp())
      if (auto config =
              producer->getAttrOfType<LoweringConfigAttr>("lowering_config");
          config && config.getDomain() == RowDomain::Logits)
        return RowDomain::Logits;
  return RowDomain::Tokens;
}

void SelectLoweringStrategyPass::setConfig(Operation *op, int64_t blockM,
                                           int64_t blockN, int64_t blockKv) {
  // prefill-pad-m replaces the buckets; [1] pads nothing.
  op->setAttr("lowering_config",
              LoweringConfigAttr::get(&getContext(), domainOf(op), blockM,
                                      blockN, blockKv, kPanelN, {1}));
  ++numConfigured;
}

/// A row_sumsq has one partial for each tile.
static void setPartials(Operation *op, Block &body, int64_t blockN) {
  for (auto [index, value] :
       llvm::enumerate(body.getTerminator()->getOperands())) {
    auto sumsq = value.getDefiningOp<RowSumsqOp>();
    if (!sumsq)
      continue;
    int64_t partials = llvm::divideCeil(numColumns(sumsq.getInput()), blockN);
    auto type = RankedTensorType::get(
        {ShapedType::kDynamic, partials},
        cast<RankedTensorType>(sumsq.getType()).getElementType());
    sumsq.getResult().setType(type);
    op->getResult(index).setType(type);
  }
}

LogicalResult SelectLoweringStrategyPass::configureTiles(Operation *op,
                                                         Block &body,
                                                         int64_t blockM) {
  int64_t columns = columnsOf(op, body);
  FailureOr<ColumnDemands> demands = collectDemands(op, body, columns);
  if (failed(demands))
    return failure();
  ColumnTiling tiling = selectColumnTiling(sizes, demands->parts, demands->unit,
                                           demands->granularity);
  if (tiling.blockN == 0)
    return op->emitOpError("has no tile width on target cpu: parts of [")
           << demands->parts << "] columns, head_dim = " << demands->unit
           << ", interleaved runs of " << demands->granularity;
  if (isa<GemmOp>(op) && tiling.groupN != columns)
    op->setAttr(kGroupNAttr, OpBuilder(op).getI64IntegerAttr(tiling.groupN));
  if (auto gemm = dyn_cast<GemmOp>(op))
    configurePasses(gemm, blockM);
  setConfig(op, blockM, tiling.blockN, 0);
  setPartials(op, body, tiling.blockN);
  return success();
}

/// How a gemm passes over K and over the rows.
void SelectLoweringStrategyPass::configurePasses(GemmOp gemm, int64_t blockM) {
  auto input = cast<RankedTensorType>(gemm.getInput().getType());
  int64_t k = input.getDimSize(1);
  OpBuilder builder(gemm);
  if (k > sizes.gemmBlockK)
    gemm->setAttr(kBlockKAttr, builder.getI64IntegerAttr(sizes.gemmBlockK));
  if (!plain)
    gemm->setAttr(kGroupMAttr,
                  builder.getI64IntegerAttr(selectGroupM(
                      sizes, blockM,
                      k * input.getElementType().getIntOrFloatBitWidth() / 8)));
}

void SelectLoweringStrategyPass::configureAttention(AttentionOp attention) {
  KVCacheType cache = attention.getCache().getType();
  int64_t group = numColumns(attention.getQuery()) / cache.getHeadDimQk() /
                  cache.getNumKvHeads();
  AttentionTile tile = attentionTile(cache, group, plain);
  if (attentionBlockQ)
    tile.blockQ = attentionBlockQ;
  if (attentionBlockKv)
    tile.blockKv = attentionBlockKv;
  // The tile's columns are the query heads of a KV head.
  setConfig(attention, tile.blockQ, group * cache.getHeadDimV(), tile.blockKv);
}

LogicalResult SelectLoweringStrategyPass::configure(func::FuncOp function) {
  for (Operation &op : function.getBody().front()) {
    LogicalResult result =
        llvm::TypeSwitch<Operation *, LogicalResult>(&op)
            .Case([&](GemmOp gemm) {
              return configureTiles(gemm, gemm.getEpilogue().front(),
                                    sizes.gemmBlockM);
            })
            .Case([&](RowwiseOp rowwise) {
              return configureTiles(rowwise, rowwise.getBody().front(),
                                    sizes.rowwiseBlockM);
            })
            .Case([&](AttentionOp attention) {
              configureAttention(attention);
              return success();
            })
            .Default([](Operation *) { return success(); });
    if (failed(result))
      return failure();
  }
  return success();
}
