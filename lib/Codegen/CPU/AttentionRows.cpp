//===- AttentionRows.cpp - which rows a workgroup of attention stores -----===//
#include "Attention.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// A row of logits_indices against the rows of a workgroup.
struct SelectedRow {
  Value row;    // from rowBegin on
  Value isHere; // i1
};

SelectedRow loadSelectedRow(KernelBuilder &b, const BatchView &batch,
                            const AttentionRows &rows, Value r) {
  Value row = b.sub(
      b.toIndex(memref::LoadOp::create(b, batch.logitsIndices, ValueRange{r})),
      rows.batchRow);
  // Unsigned: rows before the first are beyond the last.
  return {row, b.compare(arith::CmpIPredicate::ult, row, rows.count(b))};
}

} // namespace

void prefill::narrowToSelectedRows(KernelBuilder &b, const BatchView &batch,
                                   AttentionRows &rows) {
  Value zero = b.index(0);
  SmallVector<Value> bounds = b.forLoop(
      zero, batch.logitRows, 1, {rows.count(b), zero},
      [&](Value r, ValueRange carried) -> SmallVector<Value> {
        SelectedRow selected = loadSelectedRow(b, batch, rows, r);
        return {arith::SelectOp::create(b, selected.isHere,
                                        b.min(carried[0], selected.row),
                                        carried[0]),
                arith::SelectOp::create(
                    b, selected.isHere,
                    b.max(carried[1], b.add(selected.row, 1)), carried[1])};
      });
  Value isEmpty = b.compare(arith::CmpIPredicate::eq, bounds[1], zero);
  auto unlessEmpty = [&](Value value) -> Value {
    return arith::SelectOp::create(b, isEmpty, zero, value);
  };
  rows.batchRow = b.add(rows.batchRow, unlessEmpty(bounds[0]));
  rows.rowEnd = unlessEmpty(b.add(rows.rowBegin, bounds[1]));
  rows.rowBegin = unlessEmpty(b.add(rows.rowBegin, bounds[0]));
  rows.seqlenQ = unlessEmpty(rows.seqlenQ);
  rows.seqlenKv = unlessEmpty(rows.seqlenKv);
}

void prefill::forEachStoredRow(KernelBuilder &b, const BatchView &batch,
                               const AttentionRows &rows,
                               llvm::function_ref<void(Value, Value)> body) {
  if (!rows.selected) {
    b.forLoop(b.index(0), rows.count(b), 1,
              [&](Value row) { body(row, b.add(rows.batchRow, row)); });
    return;
  }
  b.forLoop(b.index(0), batch.logitRows, 1, [&](Value r) {
    SelectedRow selected = loadSelectedRow(b, batch, rows, r);
    b.ifThen(selected.isHere, [&] { body(selected.row, r); });
  });
}
