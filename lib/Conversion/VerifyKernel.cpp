//===- VerifyKernel.cpp - contract of level kernel ------------------------===//
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "prefill/Conversion/KernelContract.h"
#include "prefill/Conversion/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_VERIFYKERNELPASS
#include "prefill/Conversion/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

namespace {

InFlightDiagnostic fail(func::FuncOp kernel, Operation *op) {
  return emitError(op->getLoc()) << "kernel " << kernel.getSymName() << ": ";
}

/// A bare pointer: memref<1xT>.
bool isPointer(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  return memref && memref.getShape() == ArrayRef<int64_t>{1} &&
         memref.getLayout().isIdentity() && !memref.getMemorySpace();
}

/// Pointers and sizes, then wg_begin, wg_end and scratch (KernelABI.h).
LogicalResult verifyArguments(func::FuncOp kernel) {
  ArrayRef<Type> types = kernel.getArgumentTypes();
  for (auto [index, type] : llvm::enumerate(types))
    if (!type.isIndex() && !isPointer(type))
      return fail(kernel, kernel) << "argument " << index << " has type "
                                  << type << ", expected memref<1xT> or index";
  Builder b(kernel.getContext());
  Type tail[] = {b.getIndexType(), b.getIndexType(),
                 MemRefType::get({1}, b.getIntegerType(8))};
  ArrayRef<Type> last = types.take_back(std::size(tail));
  if (last != ArrayRef<Type>(tail))
    return fail(kernel, kernel) << "the last arguments are (" << last
                                << "), expected wg_begin, wg_end and scratch: ("
                                << ArrayRef(tail) << ")";
  return success();
}

bool allocates(Operation *op) {
  return isa<memref::AllocOp, memref::AllocaOp, memref::ReallocOp,
             memref::AllocaScopeOp, memref::DeallocOp, LLVM::AllocaOp>(op);
}

/// Loops of a thread, arithmetic, vectors and accesses to memory.
bool isKernelOp(Operation *op) {
  StringRef dialect = op->getName().getDialectNamespace();
  if (dialect == "scf")
    return isa<scf::ForOp, scf::IfOp, scf::WhileOp, scf::ConditionOp,
               scf::IndexSwitchOp, scf::YieldOp>(op);
  // What no other dialect has: instructions by name, and the pointers they
  // take.
  if (dialect == "llvm")
    return isa<LLVM::CallIntrinsicOp, LLVM::IntToPtrOp, LLVM::GEPOp>(op) ||
           op->getName().getStringRef().starts_with("llvm.intr.");
  return isa<func::ReturnOp>(op) ||
         llvm::is_contained(
             {"arith", "math", "memref", "ub", "vector", "x86vector"}, dialect);
}

LogicalResult verifyOp(func::FuncOp kernel, Operation *op) {
  if (allocates(op))
    return fail(kernel, op) << op->getName()
                            << " allocates: a kernel has the scratch "
                               "argument for that";
  if (!isKernelOp(op))
    return fail(kernel, op) << op->getName() << " is no op of level kernel";
  for (Type type : op->getResultTypes())
    if (isa<TensorType>(type))
      return fail(kernel, op) << op->getName() << " makes a tensor of type "
                              << type << ", expected scalars, vectors and "
                              << "memrefs";
  return success();
}

class VerifyKernelPass
    : public prefill::impl::VerifyKernelPassBase<VerifyKernelPass> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      if (!kernel->hasAttr(kKernelAttr))
        continue;
      if (failed(verifyKernel(kernel)))
        return signalPassFailure();
      ++numKernels;
    }
    markAllAnalysesPreserved();
  }

  LogicalResult verifyKernel(func::FuncOp kernel) {
    if (failed(verifyKernelFunction(kernel)) || failed(verifyArguments(kernel)))
      return failure();
    if (!kernel->hasAttr(kScratchBytesAttr))
      return fail(kernel, kernel)
             << "has no " << kScratchBytesAttr
             << ", which says how much scratch a thread needs";
    WalkResult result = kernel.getBody().walk<WalkOrder::PreOrder>(
        [&](Operation *op) -> WalkResult {
          ++numOps;
          return verifyOp(kernel, op);
        });
    return failure(result.wasInterrupted());
  }
};

} // namespace
