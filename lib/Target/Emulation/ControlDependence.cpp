//===- ControlDependence.cpp - which data steers control flow -------------===//
//
// A count without arithmetic moves no data. It may leave out a load whose value
// reaches no branch, no address and no operand of a synchronising operation.
// This is a backward slice over the values of the function; memory counts as
// one cell for each address space: when a shared load is in the slice, every
// value that is stored or copied to shared memory is.
//
//===----------------------------------------------------------------------===//
#include "SiteTable.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace mlir::prefill::emulation;

namespace {

class Slice {
public:
  Slice(LLVM::LLVMFuncOp kernel, Manifest &manifest)
      : kernel(kernel), manifest(manifest) {}

  /// The operation whose result would have to be computed; nullptr when none.
  Operation *run();

private:
  void need(Value value) {
    if (value && seen.insert(value).second)
      worklist.push_back(value);
  }
  void roots(Operation *op);
  void visit(Value value);
  void needShared();
  Site *site(Operation *op) {
    auto found = manifest.siteOf.find(op);
    return found == manifest.siteOf.end() ? nullptr
                                          : &manifest.sites[found->second];
  }

  LLVM::LLVMFuncOp kernel;
  Manifest &manifest;
  llvm::DenseSet<Value> seen;
  SmallVector<Value> worklist;
  bool sharedNeeded = false;
  Operation *matrix = nullptr;
};

} // namespace

void Slice::roots(Operation *op) {
  if (auto load = dyn_cast<LLVM::LoadOp>(op))
    return need(load.getAddr());
  if (auto store = dyn_cast<LLVM::StoreOp>(op))
    return need(store.getAddr());
  if (auto branch = dyn_cast<LLVM::CondBrOp>(op))
    return need(branch.getCondition());
  if (auto branch = dyn_cast<LLVM::SwitchOp>(op))
    return need(branch.getValue());
  if (auto shuffle = dyn_cast<NVVM::ShflOp>(op)) {
    need(shuffle.getThreadMask());
    need(shuffle.getOffset());
    return need(shuffle.getMaskAndClamp());
  }
  if (auto vote = dyn_cast<NVVM::VoteSyncOp>(op))
    return need(vote.getMask());
  if (auto redux = dyn_cast<NVVM::ReduxOp>(op))
    return need(redux.getMaskAndClamp());
  if (isa<NVVM::BarrierOp, NVVM::SyncWarpOp, NVVM::LdMatrixOp, NVVM::CpAsyncOp>(
          op))
    for (Value operand : op->getOperands())
      need(operand);
}

void Slice::needShared() {
  if (sharedNeeded)
    return;
  sharedNeeded = true;
  kernel.walk([&](Operation *op) {
    Site *entry = site(op);
    if (!entry || entry->space == AddressSpace::global)
      return;
    if (auto store = dyn_cast<LLVM::StoreOp>(op)) {
      entry->steersControl = true;
      need(store.getValue());
    }
    if (isa<NVVM::CpAsyncOp>(op))
      entry->steersControl = true;
  });
}

void Slice::visit(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Block *block = argument.getOwner();
    for (auto it = block->pred_begin(); it != block->pred_end(); ++it) {
      auto branch = cast<BranchOpInterface>((*it)->getTerminator());
      SuccessorOperands operands =
          branch.getSuccessorOperands(it.getSuccessorIndex());
      need(operands[argument.getArgNumber()]);
    }
    return;
  }
  Operation *op = value.getDefiningOp();
  if (isa<NVVM::MmaOp, NVVM::LdMatrixOp>(op)) {
    matrix = op;
    return;
  }
  if (isa<LLVM::LoadOp>(op)) {
    Site *entry = site(op);
    entry->steersControl = true;
    if (entry->space != AddressSpace::global)
      needShared();
    return;
  }
  for (Value operand : op->getOperands())
    need(operand);
}

Operation *Slice::run() {
  kernel.walk([&](Operation *op) { roots(op); });
  while (!worklist.empty())
    visit(worklist.pop_back_val());
  return matrix;
}

void mlir::prefill::emulation::markControlDependence(LLVM::LLVMFuncOp kernel,
                                                     Manifest &manifest,
                                                     Kernel &entry) {
  if (Operation *op = Slice(kernel, manifest).run())
    entry.needsArithmetic = manifest.sites[manifest.siteOf.lookup(op)].name;
}
