//===- AttentionRowTile.h - a few rows against one KV block -----*- C++ -*-===//
//
// Online softmax of a few rows of a workgroup. How the two products are made is
// a subclass's: with vectors (AttentionTile.cpp) or AMX tiles
// (AttentionAmx.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_LIB_CODEGEN_CPU_ATTENTIONROWTILE_H
#define PREFILL_LIB_CODEGEN_CPU_ATTENTIONROWTILE_H

#include "Attention.h"

namespace mlir::prefill {

/// Lanes of the widest vector of any variant: scratch has one size for all.
inline constexpr int64_t kMaxLanes = 16;

class RowTileEmitter {
public:
  virtual ~RowTileEmitter();
  void emit();

protected:
  /// `count` rows are computed, of which the first `rows` exist: the others
  /// hold anything.
  RowTileEmitter(AttentionContext &context, const AttentionBlock &block,
                 BlockMask mask, Value firstRow, int64_t count, Value rows);

  /// Stores the scores of the panels [firstPanel, endPanel), masked; returns
  /// the largest of each row by lane.
  virtual SmallVector<Value> emitScores() = 0;
  /// Rescales the accumulators and adds the product of the probabilities with
  /// the values of those panels.
  virtual void emitAccumulators() = 0;

  /// Where the page of a panel begins in the cache.
  Value pageOffset(Value panel);
  /// Calls `multiply(begin, end, values, start)` for runs of panels whose
  /// values lie in one memref, panel p's from `start(p)` on.
  void
  forEachRunOfValues(llvm::function_ref<void(Value, Value, Value,
                                             llvm::function_ref<Value(Value)>)>
                         multiply);
  /// -inf where the row does not see the key: with the row's keys
  /// [first, first + n), one unsigned comparison of key - first with n.
  Value emitMask(Value score, Value row, Value column);
  Value loadBroadcast(Value memref, Value index);

  KernelBuilder &b;
  const CpuIsa &isa;
  const AttentionKernelShape &shape;
  const AttentionScratch &scratch;
  const AttentionBlock &block;
  BlockMask mask;
  Value firstRow;
  int64_t count;
  Value rows;
  int64_t lanes;
  Value firstPanel, endPanel;
  /// Behind the last key that any row sees; of blocks with a mask.
  Value endKey;
  /// Panels that every row sees whole; of blocks with a mask.
  Value fullBegin, fullEnd;

private:
  Value loadKey(Value memref, Value row);
  void emitProducts();
  void emitRowState(ArrayRef<Value> largest);
  void emitProbabilities(Value row);
  void emitProbabilityPair(Value at, Value shifts, Value &evenSum,
                           Value &oddSum);
};

/// All rows of the workgroup by AMX tiles (AttentionAmx.cpp).
bool attentionUsesAmx(const CpuIsa &isa, const AttentionKernelShape &shape);
void emitBlockOnAmx(AttentionContext &context, const AttentionRows &rows,
                    const AttentionBlock &block, BlockMask mask);

} // namespace mlir::prefill

#endif // PREFILL_LIB_CODEGEN_CPU_ATTENTIONROWTILE_H
