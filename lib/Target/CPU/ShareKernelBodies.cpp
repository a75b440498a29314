//===- ShareKernelBodies.cpp - one body for equal kernels -----------------===//
#include "ShareKernelBodies.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// For each argument of `body` the argument of `kernel` that stands in its
/// place, if the two are the same otherwise.
class BodyMatch {
public:
  static std::optional<SmallVector<Value>> find(func::FuncOp body,
                                                func::FuncOp kernel) {
    if (body.getFunctionType() != kernel.getFunctionType())
      return std::nullopt;
    BodyMatch match(body, kernel);
    bool same = OperationEquivalence::isRegionEquivalentTo(
        &body.getBody(), &kernel.getBody(),
        [&](Value lhs, Value rhs) {
          return success(match.areEquivalent(lhs, rhs));
        },
        [&](Value lhs, Value rhs) { match.mark(lhs, rhs); },
        OperationEquivalence::IgnoreLocations);
    if (!same || match.joinsBuffers())
      return std::nullopt;
    return match.arguments();
  }

private:
  BodyMatch(func::FuncOp body, func::FuncOp kernel)
      : body(body), kernel(kernel) {}

  static bool isArgumentOf(func::FuncOp function, Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && argument.getOwner() == &function.getBody().front();
  }

  /// Arguments are matched by their first use in place of their number.
  void mark(Value lhs, Value rhs) {
    if (!isArgumentOf(body, lhs))
      matched[lhs] = rhs;
  }

  bool areEquivalent(Value lhs, Value rhs) {
    if (!isArgumentOf(body, lhs))
      return matched.lookup(lhs) == rhs;
    if (!isArgumentOf(kernel, rhs) || lhs.getType() != rhs.getType())
      return false;
    return matched.try_emplace(lhs, rhs).first->second == rhs;
  }

  /// Whether a buffer would be two arguments that the body uses, which takes
  /// them for different ones (KernelEntries).
  bool joinsBuffers() {
    llvm::SmallDenseSet<Value> buffers;
    for (Value argument : body.getArguments())
      if (Value used = matched.lookup(argument))
        if (isa<MemRefType>(used.getType()) && !buffers.insert(used).second)
          return true;
    return false;
  }

  SmallVector<Value> arguments() {
    SmallVector<Value> result;
    for (auto [own, other] :
         llvm::zip_equal(body.getArguments(), kernel.getArguments())) {
      Value used = matched.lookup(own);
      result.push_back(used ? used : Value(other));
    }
    return result;
  }

  func::FuncOp body, kernel;
  DenseMap<Value, Value> matched;
};

struct ShareKernelBodiesPass
    : PassWrapper<ShareKernelBodiesPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ShareKernelBodiesPass)

  StringRef getName() const override { return "ShareKernelBodiesPass"; }

  void runOnOperation() override {
    SmallVector<func::FuncOp> bodies;
    for (auto kernel : getOperation().getOps<func::FuncOp>())
      if (kernel->hasAttr(kKernelAttr) && !share(bodies, kernel))
        bodies.push_back(kernel);
  }

private:
  static bool share(ArrayRef<func::FuncOp> bodies, func::FuncOp kernel) {
    for (func::FuncOp body : bodies) {
      auto arguments = BodyMatch::find(body, kernel);
      if (!arguments)
        continue;
      Block &block = kernel.getBody().front();
      block.clear();
      OpBuilder builder = OpBuilder::atBlockEnd(&block);
      func::CallOp::create(builder, kernel.getLoc(), body, *arguments);
      func::ReturnOp::create(builder, kernel.getLoc());
      return true;
    }
    return false;
  }
};

} // namespace

std::unique_ptr<Pass> mlir::prefill::createShareKernelBodiesPass() {
  return std::make_unique<ShareKernelBodiesPass>();
}
