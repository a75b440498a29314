//===- KernelToLLVM.cpp - level kernel to the LLVM dialect ----------------===//
//
// All dialects of kernels are converted by one pass: one after the other, as
// MLIR's own passes do it, every pass would walk and rebuild 50 000 operations.
//
//===----------------------------------------------------------------------===//
#include "ShareKernelBodies.h"
#include "mlir/Analysis/DataLayoutAnalysis.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/Transforms/LoweringPatterns.h"
#include "mlir/Dialect/Vector/Transforms/VectorRewritePatterns.h"
#include "mlir/Dialect/X86Vector/Transforms.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "prefill/Target/CPU/CompileObject.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// Everything but structured control flow, which is gone by then.
struct ConvertKernelToLLVMPass
    : PassWrapper<ConvertKernelToLLVMPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ConvertKernelToLLVMPass)

  StringRef getName() const override { return "ConvertKernelToLLVMPass"; }

  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<LLVM::LLVMDialect, vector::VectorDialect,
                    x86vector::X86VectorDialect>();
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    MLIRContext *context = module.getContext();
    const auto &layout = getAnalysis<DataLayoutAnalysis>();
    LowerToLLVMOptions options(context, layout.getAtOrAbove(module));
    options.useBarePtrCallConv = true;
    LLVMTypeConverter converter(context, options, &layout);
    LLVMConversionTarget target(*context);
    target.addLegalOp<ModuleOp>();
    RewritePatternSet patterns(context);
    arith::populateArithToLLVMConversionPatterns(converter, patterns);
    cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
    populateFuncToLLVMConversionPatterns(converter, patterns);
    populateMathToLLVMConversionPatterns(converter, patterns);
    populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns);
    ub::populateUBToLLVMConversionPatterns(converter, patterns);
    vector::populateVectorInsertExtractStridedSliceTransforms(patterns);
    vector::populateVectorMaskOpLoweringPatterns(patterns);
    vector::populateVectorMaskMaterializationPatterns(
        patterns, /*force32BitVectorIndices=*/true);
    populateVectorToLLVMConversionPatterns(converter, patterns);
    populateX86VectorLegalizeForLLVMExportPatterns(converter, patterns);
    configureX86VectorLegalizeForExportTarget(target);
    if (failed(applyFullConversion(module, target, std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace

void mlir::prefill::buildKernelToLLVMPipeline(OpPassManager &pm) {
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createShareKernelBodiesPass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(std::make_unique<ConvertKernelToLLVMPass>());
}
