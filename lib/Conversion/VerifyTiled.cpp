//===- VerifyTiled.cpp - contract of level tiled --------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "prefill/Conversion/KernelContract.h"
#include "prefill/Conversion/Passes.h"
#include "prefill/Dialect/Prefill/Transforms/KVBlocks.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_VERIFYTILEDPASS
#include "prefill/Conversion/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// The ops that store what a workgroup computes.
bool isStoringOp(Operation *op) {
  return isa<GemmOp, RowwiseOp, MaterializedAttentionOp, AttentionNormalizeOp,
             AttentionPartialOp>(op);
}

/// Whether an op that has both forms is in tile form.
bool isTile(Operation *op) {
  return TypeSwitch<Operation *, bool>(op)
      .Case<GemmOp, RowwiseOp, OnlineAttentionOp, AttentionNormalizeOp,
            AttentionPartialOp>(
          [](auto form) { return !form.getTile().empty(); })
      .Case<AttentionOp>([](auto) { return false; })
      .Default([](Operation *) { return true; });
}

bool isTiledOp(Operation *op) {
  if (isa<arith::ArithDialect>(op->getDialect()))
    return true;
  return isStoringOp(op) ||
         isa<AttentionOp, OnlineAttentionOp, AttentionWorkgroupOp,
             NumSequencesOp, scf::ForallOp, scf::InParallelOp, scf::ForOp,
             scf::IfOp, scf::YieldOp, tensor::DimOp, memref::DimOp,
             func::ReturnOp>(op);
}

/// Checks one kernel; its functions emit one diagnostic on failure.
class KernelVerifier {
public:
  explicit KernelVerifier(func::FuncOp kernel) : kernel(kernel) {}

  LogicalResult verify() {
    return success(succeeded(verifyKernelFunction(kernel)) &&
                   succeeded(verifyOps()) && succeeded(verifyWorkgroupLoop()) &&
                   succeeded(verifyKVLoops()));
  }
  size_t numKVLoops() const { return kvLoops.size(); }

private:
  func::FuncOp kernel;
  SmallVector<scf::ForOp> kvLoops;

  InFlightDiagnostic fail(Operation *op) {
    return emitError(op->getLoc()) << "kernel " << kernel.getSymName() << ": ";
  }

  LogicalResult verifyOps() {
    WalkResult result = kernel.getBody().walk<WalkOrder::PreOrder>(
        [&](Operation *op) -> WalkResult {
          if (!isTiledOp(op))
            return fail(op) << op->getName() << " is no op of level tiled";
          if (!isTile(op))
            return fail(op) << op->getName()
                            << " is not in tile form (run prefill-tile)";
          // Regions of gemm and rowwise are theirs to verify.
          return isa<GemmOp, RowwiseOp>(op) ? WalkResult::skip()
                                            : WalkResult::advance();
        });
    return failure(result.wasInterrupted());
  }

  LogicalResult verifyWorkgroupLoop() {
    SmallVector<scf::ForallOp> loops;
    SmallVector<Operation *> stores;
    kernel.walk([&](Operation *op) {
      if (auto loop = dyn_cast<scf::ForallOp>(op))
        loops.push_back(loop);
      else if (isStoringOp(op))
        stores.push_back(op);
    });
    if (loops.size() != 1)
      return fail(kernel) << "has " << loops.size()
                          << " scf.forall, expected one, over its workgroups";
    scf::ForallOp loop = loops.front();
    if (loop->getParentOp() != kernel || loop.getRank() != 1 ||
        !loop.isNormalized() || loop.getNumResults() != 0)
      return fail(loop)
             << "the loop over workgroups stands in "
             << loop->getParentOp()->getName() << " with " << loop.getRank()
             << " dimensions and " << loop.getNumResults()
             << " results, expected func.func, one dimension from 0 with step "
                "1, and no results";
    if (stores.size() != 1)
      return fail(kernel) << "has " << stores.size()
                          << " ops that store results, expected one";
    if (!loop->isProperAncestor(stores.front()))
      return fail(stores.front()) << stores.front()->getName()
                                  << " stands outside the loop over workgroups";
    return success();
  }

  /// The loops over KV blocks, and the mask of each op in them.
  LogicalResult verifyKVLoops() {
    WalkResult result =
        kernel.walk([&](OnlineAttentionOp attention) -> WalkResult {
          auto loop = dyn_cast<scf::ForOp>(attention->getParentOp());
          if (!loop || attention.getTile().back() != loop.getInductionVar())
            return fail(attention)
                   << attention->getName()
                   << " stands in no scf.for over its KV blocks";
          if (kvLoops.empty() || kvLoops.back() != loop)
            kvLoops.push_back(loop);
          return verifyMask(attention, loop);
        });
    if (result.wasInterrupted())
      return failure();
    for (scf::ForOp loop : kvLoops) {
      if (loop->hasAttr(kKVBlocksAttr))
        continue;
      InFlightDiagnostic diagnostic = fail(loop)
                                      << "a KV loop without " << kKVBlocksAttr
                                      << " runs over all blocks, but ";
      if (kvLoops.size() != 1)
        return diagnostic << "the kernel has " << kvLoops.size() << " KV loops";
      if (!findPartial(loop) && !matchPattern(loop.getLowerBound(), m_Zero()))
        return diagnostic << "it does not start at 0";
      diagnostic.abandon();
    }
    for (auto [before, loop] :
         llvm::zip(kvLoops, ArrayRef(kvLoops).drop_front(!kvLoops.empty())))
      if (failed(verifySuccession(before, loop)))
        return failure();
    return success();
  }

  LogicalResult verifyMask(OnlineAttentionOp attention, scf::ForOp loop) {
    BlockMask mask = attention.getMask();
    Attribute blocks = loop->getAttr(kKVBlocksAttr);
    StringRef expected = kvBlocksName(mask);
    // All blocks: which of them need masks is not known, so all have them.
    if (blocks ? blocks == StringAttr::get(loop.getContext(), expected)
               : mask == BlockMask::Edge)
      return success();
    InFlightDiagnostic diagnostic =
        fail(attention) << attention->getName() << " with mask "
                        << stringifyBlockMask(mask) << " stands in a KV loop ";
    if (blocks)
      diagnostic << "marked " << blocks;
    else
      diagnostic << "without " << kKVBlocksAttr;
    return diagnostic << ", expected \"" << expected << "\"";
  }

  /// Each block is visited once, in the order of the keys: a result does not
  /// depend on how many keys came in which chunk.
  LogicalResult verifySuccession(scf::ForOp before, scf::ForOp loop) {
    if (loop.getLowerBound() != before.getUpperBound())
      return fail(loop)
             << "a KV loop does not start where the one before it ends";
    if (!llvm::equal(loop.getInitArgs(), before.getResults()))
      return fail(loop)
             << "a KV loop does not take over the state of the one before it";
    return success();
  }
};

/// LAUNCH-C2 and the number of buffers hold already; here: each is the memref
/// of a tensor result.
LogicalResult verifyLaunch(LaunchOp launch, func::FuncOp kernel) {
  unsigned index = launch.getNumOperands();
  for (Type type : launch.getResultTypes()) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor)
      continue;
    Type expected = MemRefType::get(tensor.getShape(), tensor.getElementType());
    Type argument = kernel.getArgumentTypes()[index];
    if (argument != expected)
      return emitError(launch.getLoc())
             << "launch of kernel " << kernel.getSymName() << " has a result "
             << type << ", but argument " << index << " of the kernel is "
             << argument << ", expected " << expected;
    ++index;
  }
  return success();
}

class VerifyTiledPass
    : public prefill::impl::VerifyTiledPassBase<VerifyTiledPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (auto kernel : module.getOps<func::FuncOp>()) {
      if (!kernel->hasAttr(kKernelAttr))
        continue;
      KernelVerifier verifier(kernel);
      if (failed(verifier.verify()))
        return signalPassFailure();
      ++numKernels;
      numKVLoops += verifier.numKVLoops();
    }
    auto entry = module.lookupSymbol<func::FuncOp>(kEntryName);
    if (!entry || entry.isExternal()) {
      emitError(module.getLoc())
          << "the module has no function @" << kEntryName;
      return signalPassFailure();
    }
    if (failed(verifyPlan(entry)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }

  LogicalResult verifyPlan(func::FuncOp entry) {
    for (Operation &op : entry.getBody().front()) {
      if (auto launch = dyn_cast<LaunchOp>(op)) {
        if (failed(
                verifyLaunch(launch, getOperation().lookupSymbol<func::FuncOp>(
                                         launch.getKernelAttr()))))
          return failure();
      } else if (!isa<GetWeightOp, func::ReturnOp>(op)) {
        return emitError(op.getLoc())
               << op.getName()
               << " in the entry function of level tiled, expected "
                  "prefill.get_weight and prefill.launch";
      }
    }
    return success();
  }
};

} // namespace
