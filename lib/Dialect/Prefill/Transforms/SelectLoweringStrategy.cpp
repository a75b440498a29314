//===- SelectLoweringStrategy.cpp - every compute op gets tiles -----------===//
#include "TargetTiles.h"
#include "mlir/Transforms/RegionUtils.h"
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_SELECTLOWERINGSTRATEGYPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// A gemm's accumulator width, or the width of a rowwise's widest value.
static int64_t columnsOf(Operation *op, Block &body) {
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

FailureOr<ColumnDemands> prefill::collectDemands(Operation *op,
                                                 StringRef target) {
  Block &body = op->getRegion(0).front();
  int64_t columns = columnsOf(op, body);
  ColumnDemands demands;
  demands.columns = columns;
  demands.parts = {columns};
  WalkResult result = body.walk([&](Operation *node) {
    auto setUnit = [&](int64_t headDim) {
      if (demands.unit && demands.unit != headDim) {
        node->emitOpError("needs head_dim = ")
            << headDim << " where other nodes of the epilogue have "
            << demands.unit << "; target " << target
            << " tiles columns by one head size";
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

namespace {

constexpr StringLiteral kLMHead = "lm_head", kFinalNorm = "final_norm";

bool isLMHead(Operation *op) {
  auto name = op->getAttrOfType<StringAttr>(kNameAttr);
  return isa<GemmOp>(op) && name && name == kLMHead;
}

class SelectLoweringStrategyPass
    : public mlir::prefill::impl::SelectLoweringStrategyPassBase<
          SelectLoweringStrategyPass> {
public:
  using SelectLoweringStrategyPassBase::SelectLoweringStrategyPassBase;

private:
  void runOnOperation() override {
    tiles = createTiles();
    if (!tiles)
      return signalPassFailure();
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
  template <typename OpTy> LogicalResult configureColumns(OpTy op, Block &body);
  void setConfig(Operation *op, const OpTiles &chosen);
  RowDomain domainOf(Operation *op);
  /// Of the target; null after an error.
  std::unique_ptr<TargetTiles> createTiles();
  /// What options overrule of the tables; nullopt after an error.
  std::optional<CudaTuning> parseCudaTuning();

  std::shared_ptr<const TargetTiles> tiles; // passes are copied
};

} // namespace

std::unique_ptr<TargetTiles> SelectLoweringStrategyPass::createTiles() {
  constexpr int64_t maxBlock = 4096; // as of a tuning file
  for (const Option<int64_t> *size :
       {&gemmBlockM, &gemmBlockN, &attentionBlockQ, &attentionBlockKv})
    if (*size < 0 || *size > maxBlock) {
      getOperation().emitError()
          << getArgument() << ": " << size->getArgStr() << " is "
          << size->getValue() << ", expected 1 to " << maxBlock
          << ", or 0 for the table's";
      return nullptr;
    }
  StringRef name = target;
  if (name == "cpu")
    return createCpuTiles(
        {l1, l2, l3},
        {gemmBlockM, gemmBlockN, attentionBlockQ, attentionBlockKv}, plain);
  if (name.consume_front("cuda:"))
    if (const CudaChip *chip = lookupCudaChip(name)) {
      std::optional<CudaTuning> tuning = parseCudaTuning();
      if (!tuning)
        return nullptr;
      if (!rows.empty()) {
        CudaSchedule given{0, {rows.begin(), rows.end()}};
        return createCudaTiles(*chip, given, given, *tuning, plain);
      }
      if (const CudaSchedule *schedule = lookupCudaSchedule(maxRows))
        return createCudaTiles(*chip, *schedule, cudaSchedules(), *tuning,
                               plain);
      getOperation().emitError()
          << getArgument() << ": max-rows is " << maxRows.getValue()
          << ", expected the limit of a schedule: " << cudaScheduleLimits();
      return nullptr;
    }
  std::string valid = "cpu";
  for (const CudaChip &chip : cudaChips())
    valid += (", cuda:" + chip.name).str();
  getOperation().emitError()
      << "unknown target '" << target << "'; valid are " << valid;
  return nullptr;
}

std::optional<CudaTuning> SelectLoweringStrategyPass::parseCudaTuning() {
  CudaTuning tuning;
  tuning.gemmBlockM = gemmBlockM;
  tuning.gemmBlockN = gemmBlockN;
  tuning.attentionBlockQ = attentionBlockQ;
  tuning.attentionBlockKv = attentionBlockKv;
  auto read = [&](StringRef option, auto &texts, auto parse, auto &entries) {
    for (const std::string &text : texts) {
      auto entry = parse(text);
      if (!entry) {
        getOperation().emitError() << getArgument() << ": " << option << " is "
                                   << llvm::toString(entry.takeError());
        return false;
      }
      entries.push_back(std::move(*entry));
    }
    return true;
  };
  if (!read("gemm-tiles", gemmTiles, parseGemmTuning, tuning.gemms) ||
      !read("attention-tiles", attentionTiles, parseAttentionTuning,
            tuning.attentions))
    return std::nullopt;
  return tuning;
}

/// All that the target cannot do, named before anything is changed.
LogicalResult SelectLoweringStrategyPass::refuse(func::FuncOp function) {
  bool refused = false;
  SmallVector<AttentionOp> others;
  function.walk([&](Operation *op) {
    if (failed(tiles->refuse(op)))
      refused = true;
    else if (auto attention = dyn_cast<AttentionOp>(op))
      others.push_back(attention);
  });
  // Without configure() nothing else would say that these have no tile.
  if (refused)
    for (AttentionOp attention : others)
      (void)tiles->attention(attention);
  return failure(refused);
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
      gemm->setAttr(kNameAttr, builder.getStringAttr(kLMHead));
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
/// kernel, where hoist-row-selection has not selected them long before.
void SelectLoweringStrategyPass::fuseFinalNorm(func::FuncOp function) {
  for (auto norm : llvm::make_early_inc_range(function.getOps<RMSNormOp>())) {
    if (norm.getHeadDim())
      continue;
    auto select = norm.getInput().getDefiningOp<SelectRowsOp>();
    if (!select || !select->hasOneUse()) {
      if (llvm::all_of(norm->getUsers(), isLMHead))
        norm->setAttr(kNameAttr, StringAttr::get(&getContext(), kFinalNorm));
      continue;
    }
    wrapInRowwise({select, norm}, kFinalNorm);
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
  if (auto attention = dyn_cast<AttentionOp>(op))
    selects = attention.getSelectedRows();
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

void SelectLoweringStrategyPass::setConfig(Operation *op,
                                           const OpTiles &chosen) {
  // prefill-pad-m replaces the buckets; [1] pads nothing.
  op->setAttr("lowering_config",
              LoweringConfigAttr::get(&getContext(), domainOf(op),
                                      chosen.blockM, chosen.blockN,
                                      chosen.blockKv, chosen.panelN, {1}));
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

InFlightDiagnostic prefill::noTileWidth(Operation *op,
                                        const ColumnDemands &demands,
                                        StringRef target) {
  return op->emitOpError("has no tile width on target ")
         << target << ": parts of [" << demands.parts
         << "] columns, head_dim = " << demands.unit << ", interleaved runs of "
         << demands.granularity;
}

template <typename OpTy>
LogicalResult SelectLoweringStrategyPass::configureColumns(OpTy op,
                                                           Block &body) {
  FailureOr<ColumnDemands> demands = collectDemands(op, tiles->name());
  if (failed(demands))
    return failure();
  demands->domain = domainOf(op);
  FailureOr<OpTiles> chosen;
  if constexpr (std::is_same_v<OpTy, GemmOp>)
    chosen = tiles->gemm(op, *demands);
  else
    chosen = tiles->rowwise(op, *demands);
  if (failed(chosen))
    return failure();
  setConfig(op, *chosen);
  setPartials(op, body, chosen->blockN);
  return success();
}

/// Goes on after an op without tiles, so that all of them are named.
LogicalResult SelectLoweringStrategyPass::configure(func::FuncOp function) {
  bool refused = false;
  for (Operation &op : function.getBody().front()) {
    LogicalResult result =
        llvm::TypeSwitch<Operation *, LogicalResult>(&op)
            .Case([&](GemmOp gemm) {
              return configureColumns(gemm, gemm.getEpilogue().front());
            })
            .Case([&](RowwiseOp rowwise) {
              return configureColumns(rowwise, rowwise.getBody().front());
            })
            .Case([&](AttentionOp attention) -> LogicalResult {
              FailureOr<OpTiles> chosen = tiles->attention(attention);
              if (failed(chosen))
                return failure();
              setConfig(attention, *chosen);
              return success();
            })
            .Default([](Operation *) { return success(); });
    refused |= failed(result);
  }
  return failure(refused);
}
