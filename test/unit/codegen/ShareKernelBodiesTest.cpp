//===- ShareKernelBodiesTest.cpp - which kernels share a body -------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Target/CPU/CompileObject.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// A kernel that stores the first element of `from` at `row` of `to`.
std::string kernel(const std::string &name, const std::string &from,
                   const std::string &to, const std::string &row) {
  return "func.func private @" + name +
         "(%p: memref<1xf32>, %q: memref<1xf32>, %r: memref<1xf32>, %m: index, "
         "%n: index) attributes {prefill.kernel} {\n"
         "  %c0 = arith.constant 0 : index\n  %v = memref.load %" +
         from + "[%c0] : memref<1xf32>\n  memref.store %v, %" + to + "[%" +
         row + "] : memref<1xf32>\n  return\n}\n";
}

/// Numbers of the arguments with which the kernel `name` of level target calls
/// @body; empty: it has its own.
std::vector<unsigned> callOf(const std::string &kernels,
                             const std::string &name) {
  MLIRContext context;
  context
      .loadDialect<PrefillDialect, func::FuncDialect, memref::MemRefDialect>();
  loadDialectsOfObjects(context);
  auto module = parseSourceString<ModuleOp>(kernels, &context);
  EXPECT_TRUE(module);
  PassManager passes(module->getContext(), ModuleOp::getOperationName());
  buildKernelToLLVMPipeline(passes);
  EXPECT_TRUE(succeeded(passes.run(*module)));
  std::vector<unsigned> arguments;
  auto function = module->lookupSymbol<LLVM::LLVMFuncOp>(name);
  function.walk([&](LLVM::CallOp call) {
    EXPECT_EQ(call.getCallee(), "body");
    // Buffers are wrapped in descriptors and taken out again.
    for (Value operand : call.getCalleeOperands()) {
      while (Operation *op = operand.getDefiningOp()) {
        auto insert = dyn_cast<LLVM::InsertValueOp>(op);
        operand =
            isa<LLVM::ExtractValueOp>(op) ? op->getOperand(0)
            : insert.getPosition().size() == 1 && insert.getPosition()[0] <= 1
                ? insert.getValue()
                : insert.getContainer();
      }
      arguments.push_back(cast<BlockArgument>(operand).getArgNumber());
    }
  });
  return arguments;
}

using Arguments = std::vector<unsigned>;

TEST(ShareKernelBodies, OtherSizesAndBuffers) {
  std::string body = kernel("body", "p", "q", "m");
  EXPECT_EQ(callOf(body + kernel("same", "p", "q", "m"), "same"),
            (Arguments{0, 1, 2, 3, 4}));
  EXPECT_EQ(callOf(body + kernel("rows", "p", "q", "n"), "rows"),
            (Arguments{0, 1, 2, 4, 4}));
  EXPECT_EQ(callOf(body + kernel("swapped", "q", "p", "m"), "swapped"),
            (Arguments{1, 0, 2, 3, 4}));
  // What stands in an argument's place that the body does not read is no
  // matter.
  EXPECT_EQ(callOf(body + kernel("third", "p", "r", "m"), "third"),
            (Arguments{0, 2, 2, 3, 4}));
}

TEST(ShareKernelBodies, ABufferIsNotTakenForTwo) {
  // LLVM may move the body's loads across its stores.
  EXPECT_EQ(
      callOf(kernel("body", "p", "q", "m") + kernel("in_place", "p", "p", "m"),
             "in_place"),
      Arguments());
}

TEST(ShareKernelBodies, OtherCodeStaysApart) {
  std::string other = kernel("other", "p", "q", "m");
  other.replace(other.find("constant 0"), 10, "constant 1");
  EXPECT_EQ(callOf(kernel("body", "p", "q", "m") + other, "other"),
            Arguments());
}

} // namespace
