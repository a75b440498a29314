//===- KernelEntries.cpp - what the runtime calls -------------------------===//
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Target/CPU/CompileObject.h"

using namespace mlir;
using namespace mlir::prefill;

/// The words of `args` become the body's leading arguments; the workgroup range
/// and the scratch are passed on. `calls`: those of other kernels
/// (ShareKernelBodies.h).
static LogicalResult addEntry(LLVM::LLVMFuncOp body,
                              ArrayRef<LLVM::CallOp> calls) {
  MLIRContext *context = body.getContext();
  OpBuilder builder(context);
  Location loc = body.getLoc();
  auto bodyType = body.getFunctionType();
  unsigned numArgs = bodyType.getNumParams();
  if (numArgs < 3)
    return body.emitError("kernel has ") << numArgs
                                         << " arguments, expected at least the "
                                            "workgroup range and the scratch";

  std::string name = body.getName().str();
  body.setName(name + ".body");
  for (LLVM::CallOp call : calls)
    call.setCallee(body.getName());
  body.setLinkage(LLVM::Linkage::Internal);
  body->setAttr("passthrough",
                builder.getArrayAttr({builder.getStringAttr(
                    calls.empty() ? "alwaysinline" : "noinline")}));

  auto pointer = LLVM::LLVMPointerType::get(context);
  Type i64 = builder.getI64Type();
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context),
                                          {pointer, i64, i64, pointer});
  builder.setInsertionPointAfter(body);
  auto entry = LLVM::LLVMFuncOp::create(builder, loc, name, type);
  Block *block = entry.addEntryBlock(builder);
  builder.setInsertionPointToStart(block);
  SmallVector<Value> operands;
  for (unsigned i = 0; i + 3 < numArgs; ++i) {
    Value address =
        LLVM::GEPOp::create(builder, loc, pointer, i64, block->getArgument(0),
                            ArrayRef<LLVM::GEPArg>{int32_t(i)});
    operands.push_back(
        LLVM::LoadOp::create(builder, loc, bodyType.getParamType(i), address));
    // Buffers, weights and cache never overlap, so that loads may move across
    // the stores of a tile.
    if (isa<LLVM::LLVMPointerType>(bodyType.getParamType(i)))
      body.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(),
                      builder.getUnitAttr());
  }
  operands.append(
      {block->getArgument(1), block->getArgument(2), block->getArgument(3)});
  body.setArgAttr(numArgs - 1, LLVM::LLVMDialect::getNoAliasAttrName(),
                  builder.getUnitAttr());
  LLVM::CallOp::create(builder, loc, body, operands);
  LLVM::ReturnOp::create(builder, loc, ValueRange());
  return success();
}

LogicalResult mlir::prefill::addKernelEntries(ModuleOp module) {
  SmallVector<LLVM::LLVMFuncOp> kernels;
  for (auto func : module.getOps<LLVM::LLVMFuncOp>())
    if (func->hasAttr(kKernelAttr))
      kernels.push_back(func);
  if (kernels.empty())
    return module.emitError("module holds no kernel (an llvm.func with ")
           << kKernelAttr << ")";
  llvm::StringMap<SmallVector<LLVM::CallOp>> calls;
  module.walk([&](LLVM::CallOp call) {
    if (call.getCallee())
      calls[*call.getCallee()].push_back(call);
  });
  for (LLVM::LLVMFuncOp kernel : kernels) {
    if (failed(addEntry(kernel, calls.lookup(kernel.getName()))))
      return failure();
    // The dialect's own attributes have no translation to LLVM IR.
    for (StringRef name : {kKernelAttr, kGridAttr, kScratchBytesAttr})
      kernel->removeAttr(name);
  }
  return success();
}
