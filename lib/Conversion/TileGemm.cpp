//===- TileGemm.cpp - gemm and rowwise kernels to tiles -------------------===//
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"
#include "prefill/Codegen/Common/KernelBuilder.h"
#include "prefill/Codegen/Common/PackedWeights.h"
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

/// Rows of a workgroup in the plain form: more than a batch can have.
static constexpr int64_t kAllRows = std::numeric_limits<int32_t>::max();

/// The number of the tile: each is a workgroup, or (`plain`) one workgroup runs
/// through all of them. The builder then stands in the loop.
static Value createTileLoop(KernelBuilder &b, Value rows, Value count,
                            bool plain) {
  // As prefill.grid counts them. A constant 1 would not do: canonicalize then
  // removes the loop, and the kernel would no longer heed its range.
  Value workgroups = plain ? b.ceilDivide(rows, kAllRows) : count;
  scf::ForallOp loop = createWorkgroupLoop(b, b.getLoc(), workgroups);
  if (!plain)
    return loop.getInductionVar(0);
  auto tiles = scf::ForOp::create(b, b.index(0), count, b.index(1));
  b.setInsertionPoint(tiles.getBody()->getTerminator());
  return tiles.getInductionVar();
}

static void setTileGrid(func::FuncOp kernel, LoweringConfigAttr config,
                        int64_t multiplier, bool plain) {
  setGrid(kernel, config.getDomain(), plain ? kAllRows : config.getBlockM(),
          /*plusSequences=*/false, plain ? 1 : multiplier);
}

/// The row chunk and the tile of columns of a workgroup: chunks innermost
/// within a group of rows, then tiles of columns, then groups.
static std::pair<Value, Value> orderTiles(KernelBuilder &b, Value workgroup,
                                          Value chunks, GemmOp gemm,
                                          int64_t blockM, int64_t tilesN) {
  auto groupM = gemm->getAttrOfType<IntegerAttr>(kGroupMAttr);
  if (!groupM)
    return {b.remainder(workgroup, chunks), b.divide(workgroup, chunks)};
  int64_t inGroup = groupM.getInt() / blockM;
  Value first = b.mul(b.divide(workgroup, inGroup * tilesN), inGroup);
  Value count = b.min(b.sub(chunks, first), inGroup);
  Value rest = b.sub(workgroup, b.mul(first, tilesN));
  return {b.add(first, b.remainder(rest, count)), b.divide(rest, count)};
}

LogicalResult prefill::tileGemm(func::FuncOp kernel, GemmOp gemm, bool plain) {
  FailureOr<LoweringConfigAttr> config =
      requireConfig(gemm, gemm.getLoweringConfig());
  if (failed(config))
    return failure();
  int64_t columns =
      cast<ShapedType>(gemm.getEpilogue().getArgument(0).getType())
          .getDimSize(1);
  int64_t blockM = config->getBlockM(), blockN = config->getBlockN();
  int64_t tilesN = llvm::divideCeil(columns, blockN);
  if (auto groupM = gemm->getAttrOfType<IntegerAttr>(kGroupMAttr);
      groupM && (groupM.getInt() < 1 || groupM.getInt() % blockM != 0))
    return gemm.emitOpError("has ")
           << kGroupMAttr << " = " << groupM.getInt()
           << "; expected a positive multiple of block_m = " << blockM;

  SmallVector<Value> outs = replaceResultsByBuffers(kernel);
  KernelBuilder b(gemm.getLoc(), gemm);
  Value rows = tensor::DimOp::create(b, gemm.getInput(), 0);
  Value chunks = b.ceilDivide(rows, blockM);
  // Row chunks run innermost, so that neighbouring workgroups read the same
  // weights.
  Value workgroup = createTileLoop(b, rows, b.mul(chunks, tilesN), plain);
  auto [chunk, column] = orderTiles(b, workgroup, chunks, gemm, blockM, tilesN);
  Value i = b.mul(chunk, blockM);
  Value j = b.mul(column, blockN);
  auto tile = GemmOp::create(b, TypeRange(), gemm.getInput(), gemm.getWeight(),
                             ValueRange{i, j}, outs, *config);
  tile->setDiscardableAttrs(gemm->getDiscardableAttrDictionary());
  tile.getEpilogue().takeBody(gemm.getEpilogue());
  gemm.erase();
  setTileGrid(kernel, *config, tilesN, plain);
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

LogicalResult prefill::tileRowwise(func::FuncOp kernel, RowwiseOp rowwise,
                                   bool plain) {
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
  Value i =
      b.mul(createTileLoop(b, rows, b.ceilDivide(rows, blockM), plain), blockM);
  auto tile = RowwiseOp::create(b, TypeRange(), ValueRange{i}, outs, *config);
  tile->setDiscardableAttrs(rowwise->getDiscardableAttrDictionary());
  tile.getBody().takeBody(rowwise.getBody());
  rowwise.erase();
  setTileGrid(kernel, *config, 1, plain);
  return success();
}
