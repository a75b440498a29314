//===- KernelToLLVM.cpp - level kernel to the LLVM dialect, and the entries
//-===//
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Affine/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Target/CPU/CompileObject.h"

using namespace mlir;
using namespace mlir::prefill;

void mlir::prefill::buildKernelToLLVMPipeline(OpPassManager &pm) {
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createConvertVectorToSCFPass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  ConvertVectorToLLVMPassOptions vectorOptions;
  vectorOptions.x86Vector = true;
  pm.addPass(createConvertVectorToLLVMPass(vectorOptions));
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createFinalizeMemRefToLLVMConversionPass());
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertIndexToLLVMPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  ConvertFuncToLLVMPassOptions funcOptions;
  funcOptions.useBarePtrCallConv = true;
  pm.addPass(createConvertFuncToLLVMPass(funcOptions));
  pm.addPass(createUBToLLVMConversionPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

/// The words of `args` become the body's leading arguments; the workgroup range
/// and the scratch are passed on.
static LogicalResult addEntry(LLVM::LLVMFuncOp body) {
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
  body.setLinkage(LLVM::Linkage::Internal);
  body->setAttr("passthrough",
                builder.getArrayAttr({builder.getStringAttr("alwaysinline")}));

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
  for (LLVM::LLVMFuncOp kernel : kernels) {
    if (failed(addEntry(kernel)))
      return failure();
    // The dialect's own attributes have no translation to LLVM IR.
    for (StringRef name : {kKernelAttr, kGridAttr, kScratchBytesAttr})
      kernel->removeAttr(name);
  }
  return success();
}
