//===- TileGemm.cpp - gemm and rowwise kernels to tiles -------------------===//
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"
#include "prefill/Codegen/Common/KernelBuilder.h"
#include "prefill/Conversion/KernelTiling.h"

using namespace mlir;
using namespace mlir::prefill;

static FailureOr<LoweringConfigAttr>
requireConfig(Operation *op, std::optional<LoweringConfigAttr> config) {
  if (!config)
    return op->emitOpError("has no lowering_config (run "
                           "prefill-select-lowering-strategy)");
  if (config->getBlockM() < 1 || config->getBlockN() < 1)
    return op->emitOpError("has block_m = ")
           << config->getBlockM() << " and block_n = " << config->getBlockN()
           << "; both must be at least 1";
  return *config;
}

LogicalResult prefill::tileGemm(func::FuncOp kernel, GemmOp gemm) {
  FailureOr<LoweringConfigAttr> config =
      requireConfig(gemm, gemm.getLoweringConfig());
  if (failed(config))
    return failure();
  int64_t columns =
      cast<ShapedType>(gemm.getEpilogue().getArgument(0).getType())
          .getDimSize(1);
  int64_t blockM = config->getBlockM(), blockN = config->getBlockN();
  int64_t tilesN = llvm::divideCeil(columns, blockN);

  SmallVector<Value> outs = replaceResultsByBuffers(kernel);
  KernelBuilder b(gemm.getLoc(), gemm);
  Value rows = tensor::DimOp::create(b, gemm.getInput(), 0);
  Value chunks = b.ceilDivide(rows, blockM);
  scf::ForallOp loop =
      createWorkgroupLoop(b, gemm.getLoc(), b.mul(chunks, tilesN));
  // Row chunks run innermost, so that neighbouring workgroups read the same
  // weights.
  Value workgroup = loop.getInductionVar(0);
  Value i = b.mul(b.remainder(workgroup, chunks), blockM);
  Value j = b.mul(b.divide(workgroup, chunks), blockN);
  auto tile = GemmOp::create(b, TypeRange(), gemm.getInput(), gemm.getWeight(),
                             ValueRange{i, j}, outs, *config);
  tile->setDiscardableAttrs(gemm->getDiscardableAttrDictionary());
  tile.getEpilogue().takeBody(gemm.getEpilogue());
  gemm.erase();
  setGrid(kernel, config->getDomain(), blockM, false, tilesN);
  return success();
}

/// A value whose rows are the op's: a buffer that it writes, else a tensor that
/// it reads.
static Value rowCarrier(RowwiseOp rowwise, ArrayRef<Value> outs) {
  if (!outs.empty())
    return outs.front();
  SetVector<Value> captured;
  getUsedValuesDefinedAbove(rowwise.getBody(), captured);
  for (Value value : captured)
    if (auto tensor = dyn_cast<RankedTensorType>(value.getType()))
      if (tensor.getRank() == 2 && tensor.isDynamicDim(0))
        return value;
  return {};
}

LogicalResult prefill::tileRowwise(func::FuncOp kernel, RowwiseOp rowwise) {
  FailureOr<LoweringConfigAttr> config =
      requireConfig(rowwise, rowwise.getLoweringConfig());
  if (failed(config))
    return failure();
  SmallVector<Value> outs = replaceResultsByBuffers(kernel);
  Value carrier = rowCarrier(rowwise, outs);
  if (!carrier)
    return rowwise.emitOpError("neither reads nor writes a tensor of rows");
  KernelBuilder b(rowwise.getLoc(), rowwise);
  Value zero = b.index(0);
  Value rows;
  if (isa<MemRefType>(carrier.getType()))
    rows = memref::DimOp::create(b, carrier, zero);
  else
    rows = tensor::DimOp::create(b, carrier, zero);
  int64_t blockM = config->getBlockM();
  scf::ForallOp loop =
      createWorkgroupLoop(b, rowwise.getLoc(), b.ceilDivide(rows, blockM));
  Value i = b.mul(loop.getInductionVar(0), blockM);
  auto tile = RowwiseOp::create(b, TypeRange(), ValueRange{i}, outs, *config);
  tile->setDiscardableAttrs(rowwise->getDiscardableAttrDictionary());
  tile.getBody().takeBody(rowwise.getBody());
  rowwise.erase();
  setGrid(kernel, config->getDomain(), blockM, false, 1);
  return success();
}
