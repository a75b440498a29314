//===- SpecializeCausalBlocks.cpp - causality as control flow -------------===//
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "prefill/Analysis/AttentionSplits.h"
#include "prefill/Analysis/IndexArithmetic.h"
#include "prefill/Dialect/Prefill/Transforms/KVBlocks.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_SPECIALIZECAUSALBLOCKSPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// A KV loop over all blocks with masks in each, as prefill-tile makes it.
struct KVLoop {
  scf::ForOp loop;
  OnlineAttentionOp attention;
  AttentionWorkgroupOp workgroup;
  AttentionPartialOp partial; // of a split; null without
};

std::optional<KVLoop> matchKVLoop(scf::ForOp loop) {
  // The tiled op and the yield, nothing else: any other op would have to be
  // understood before blocks may be left out.
  Block *body = loop.getBody();
  AttentionPartialOp partial = findPartial(loop);
  if (body->getOperations().size() != 2 ||
      !(partial || matchPattern(loop.getLowerBound(), m_Zero())) ||
      !matchPattern(loop.getStep(), m_One()))
    return std::nullopt;
  auto attention = dyn_cast<OnlineAttentionOp>(body->front());
  if (!attention || attention.getTile().size() != 5 ||
      attention.getTile()[4] != loop.getInductionVar() ||
      attention.getMask() != BlockMask::Edge)
    return std::nullopt;
  auto workgroup = attention.getTile()[0].getDefiningOp<AttentionWorkgroupOp>();
  if (!workgroup || attention.getTile()[1] != workgroup.getRowBegin() ||
      attention.getTile()[2] != workgroup.getRowEnd())
    return std::nullopt;
  return KVLoop{loop, attention, workgroup, partial};
}

/// A copy of the loop over the blocks [begin, end) from `state` on.
scf::ForOp cloneLoop(OpBuilder &builder, KVLoop kv, Value begin, Value end,
                     ValueRange state, BlockMask mask) {
  IRMapping mapping;
  auto loop = cast<scf::ForOp>(builder.clone(*kv.loop, mapping));
  loop.setLowerBound(begin);
  loop.setUpperBound(end);
  loop.getInitArgsMutable().assign(state);
  cast<OnlineAttentionOp>(loop.getBody()->front()).setMask(mask);
  loop->setAttr(kKVBlocksAttr, builder.getStringAttr(kvBlocksName(mask)));
  return loop;
}

struct SpecializeCausalBlocks
    : mlir::prefill::impl::SpecializeCausalBlocksPassBase<
          SpecializeCausalBlocks> {
  void runOnOperation() override {
    SmallVector<KVLoop> loops;
    getOperation().walk([&](scf::ForOp loop) {
      if (std::optional<KVLoop> kv = matchKVLoop(loop))
        loops.push_back(*kv);
    });
    for (KVLoop kv : loops)
      specialize(kv);
    numSpecialized += loops.size();
  }

  void specialize(KVLoop kv) {
    OpBuilder builder(kv.loop);
    IndexArithmetic arith{builder, kv.loop.getLoc()};
    AttentionShape shape;
    shape.causal = kv.attention.getCausal();
    shape.slidingWindow = kv.attention.getSlidingWindow().value_or(0);
    shape.blockKv = kv.attention.getLoweringConfigAttr().getBlockKv();
    KVBlockRange<Value> range = attentionBlockRange(
        arith, shape,
        SequenceLengths<Value>{kv.workgroup.getSeqlenQ(),
                               kv.workgroup.getSeqlenKv()},
        kv.workgroup.getRowBegin(), kv.workgroup.getRowEnd());
    if (kv.partial)
      range = splitBlockRange(arith, range,
                              splitKeys(arith, kv.partial.getNumSplits(),
                                        kv.workgroup.getSeqlenKv(),
                                        kv.partial.getTile().back()),
                              shape.blockKv);
    SmallVector<Value> state(kv.loop.getInitArgs());
    auto add = [&](Value begin, Value end, BlockMask mask) {
      state = llvm::to_vector_of<Value>(
          cloneLoop(builder, kv, begin, end, state, mask).getResults());
      ++numLoops;
    };
    if (shape.slidingWindow)
      add(range.begin, range.fullBegin, BlockMask::Edge);
    add(range.fullBegin, range.fullEnd, BlockMask::None);
    add(range.fullEnd, range.end, BlockMask::Edge);
    kv.loop.replaceAllUsesWith(state);
    kv.loop.erase();
  }
};

} // namespace
