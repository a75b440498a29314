//===- OutlineKernels.cpp - compute ops to kernel functions and launches
//----===//
#include "mlir/Transforms/RegionUtils.h"
#include "prefill/Dialect/Prefill/Transforms/KernelMerging.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_OUTLINEKERNELSPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// Operands of the op, then the values its region uses from outside, each once.
/// Every kernel takes the batch, which tells how many rows there are.
static SetVector<Value> collectInputs(Operation *op, Value batch) {
  SetVector<Value> inputs(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), inputs);
  inputs.insert(batch);
  return inputs;
}

static Value batchOf(func::FuncOp entry) {
  for (BlockArgument argument : entry.getArguments())
    if (isa<BatchType>(argument.getType()))
      return argument;
  return {};
}

static std::string launchName(Operation *op) {
  if (auto name = op->getAttrOfType<StringAttr>(kNameAttr))
    return name.str();
  return op->getName().stripDialect().str();
}

/// A kernel function whose only compute op is a copy of `op`.
static func::FuncOp createKernel(Operation *op, ArrayRef<Value> inputs,
                                 StringRef name) {
  OpBuilder builder(op->getContext());
  SmallVector<Type> inputTypes;
  for (Value input : inputs)
    inputTypes.push_back(input.getType());
  auto kernel = func::FuncOp::create(
      builder, op->getLoc(), name,
      builder.getFunctionType(inputTypes, op->getResultTypes()));
  kernel.setPrivate();
  kernel->setAttr(kKernelAttr, builder.getUnitAttr());
  Block *block = kernel.addEntryBlock();
  builder.setInsertionPointToStart(block);
  IRMapping mapping;
  mapping.map(ArrayRef<Value>(inputs), block->getArguments());
  Operation *copy = builder.clone(*op, mapping);
  // A kernel belongs to no layer, and its buffers are the launch's.
  copy->walk([](Operation *nested) { nested->removeAttr(kLayerAttr); });
  copy->removeAttr(kBuffersAttr);
  func::ReturnOp::create(builder, op->getLoc(), copy->getResults());
  return kernel;
}

namespace {
struct OutlineKernelsPass
    : prefill::impl::OutlineKernelsPassBase<OutlineKernelsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto entry = module.lookupSymbol<func::FuncOp>(kEntryName);
    if (!entry) {
      module.emitError("module has no function @") << kEntryName;
      return signalPassFailure();
    }
    Value batch = batchOf(entry);
    if (!batch) {
      entry.emitError("entry function has no !prefill.batch argument");
      return signalPassFailure();
    }
    SmallVector<Operation *> computeOps;
    for (Operation &op : entry.getBody().front()) {
      if (isa<GetWeightOp, LaunchOp>(op) ||
          op.hasTrait<OpTrait::IsTerminator>())
        continue;
      if (!isa<GemmOp, RowwiseOp, AttentionOp>(op)) {
        op.emitOpError("cannot be a kernel; expected gemm, rowwise or "
                       "attention (run prefill-select-lowering-strategy)");
        return signalPassFailure();
      }
      computeOps.push_back(&op);
    }

    SymbolTable symbols(module);
    llvm::StringMap<func::FuncOp> kernels;
    for (Operation *op : computeOps) {
      SetVector<Value> inputs = collectInputs(op, batch);
      std::string name = launchName(op);
      func::FuncOp kernel = createKernel(op, inputs.getArrayRef(), name);
      auto [known, inserted] =
          kernels.try_emplace(name + "\n" + kernelText(kernel), kernel);
      if (inserted) {
        symbols.insert(kernel); // renames it when another kernel has the name
        ++numKernels;
      } else {
        kernel.erase();
        kernel = known->second;
      }
      OpBuilder builder(op);
      auto launch = LaunchOp::create(
          builder, op->getLoc(), op->getResultTypes(), kernel.getName(),
          inputs.getArrayRef(), op->getAttrOfType<ArrayAttr>(kBuffersAttr));
      copyLayer(op, launch);
      // Two kernels may do the same step: the last layer's has no row_sumsq.
      launch->setAttr(kNameAttr, builder.getStringAttr(name));
      op->replaceAllUsesWith(launch);
      op->erase();
      ++numLaunches;
    }
  }
};
} // namespace
