//===- EmitRowwise.cpp - a rowwise op's workgroup -------------------------===//
#include "Epilogue.h"
#include "prefill/Codegen/CPU/EmitKernels.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// Rows [firstRow, firstRow + block_m) below the row count; each row in tiles
/// of block_n columns, so that partial sums are those of a gemm's tiles.
LogicalResult emitRows(KernelBuilder &b, const CpuIsa &isa, KernelABI &abi,
                       RowwiseOp rowwise, Value firstRow) {
  EpilogueEmitter epilogue(b, isa, abi, rowwise.getBody().front(),
                           rowwise.getOuts());
  if (failed(epilogue.collectSinks()))
    return failure();
  LoweringConfigAttr config = *rowwise.getLoweringConfig();
  int64_t width = config.getBlockN();
  SmallVector<SmallVector<Sink>> groups = epilogue.sinkGroups();
  for (ArrayRef<Sink> group : groups)
    if (failed(epilogue.verifyTiles(group, width)))
      return failure();
  Value rows = config.getDomain() == RowDomain::Logits ? abi.batch().logitRows
                                                       : abi.batch().rows;
  Value end = b.min(b.add(firstRow, config.getBlockM()), rows);
  b.forLoop(firstRow, end, 1, [&](Value row) {
    for (ArrayRef<Sink> group : groups) {
      epilogue.beginRow(row, group);
      int64_t columns = group.front().columns;
      b.forLoop(b.index(0), b.index(llvm::divideCeil(columns, width)), 1,
                [&](Value index) {
                  ColumnTile tile;
                  tile.first = b.mul(index, width);
                  tile.width = width;
                  tile.limit = columns;
                  tile.index = index;
                  epilogue.emitTile(tile, group);
                });
    }
  });
  return success();
}

} // namespace

LogicalResult prefill::emitRowwiseKernel(KernelABI &abi, const CpuIsa &isa,
                                         func::FuncOp tiled) {
  return convertTiledBody(
      tiled, abi,
      [&](Operation *op, KernelBuilder &b,
          IRMapping &mapping) -> LogicalResult {
        auto rowwise = dyn_cast<RowwiseOp>(op);
        if (!rowwise || rowwise.getTile().size() != 1 ||
            !rowwise.getLoweringConfig())
          return op->emitOpError("is not a rowwise in tile form (run "
                                 "prefill-tile)");
        return emitRows(b, isa, abi, rowwise,
                        mapping.lookup(rowwise.getTile()[0]));
      });
}
