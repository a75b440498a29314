//===- KernelTiling.h - what tiling a kernel function shares ----*- C++ -*-===//
#ifndef PREFILL_CONVERSION_KERNELTILING_H
#define PREFILL_CONVERSION_KERNELTILING_H

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {

/// Adds a memref argument for each tensor result of a kernel and drops its
/// results (caches are written in place); `return` then has no operands. The
/// compute op keeps its results, unused, until the caller replaces it. Returns
/// the memref arguments in order.
SmallVector<Value> replaceResultsByBuffers(func::FuncOp kernel);

/// `scf.forall (%wg) in (%count)` at the builder's place; the builder then
/// stands in its body.
scf::ForallOp createWorkgroupLoop(OpBuilder &builder, Location loc,
                                  Value count);

/// Sets prefill.grid: (ceildiv(rows_pad(domain), block) + (plusSequences ?
/// num_seqs : 0)) * multiplier workgroups.
void setGrid(func::FuncOp kernel, RowDomain domain, int64_t block,
             bool plusSequences, int64_t multiplier);

// One function for each kind of kernel: replaces the compute op by its loop
// over workgroups. They emit a diagnostic on failure.
LogicalResult tileGemm(func::FuncOp kernel, GemmOp gemm, bool plain);
LogicalResult tileRowwise(func::FuncOp kernel, RowwiseOp rowwise, bool plain);
/// `attention` is online_attention in its whole form, which gets one loop over
/// all KV blocks with masks in each (prefill-specialize-causal-blocks takes it
/// from there), or attention: that becomes materialized_attention, and the
/// kernel gets a last argument for the scores, with the attribute
/// prefill.score.
LogicalResult tileAttention(func::FuncOp kernel, Operation *attention);

} // namespace mlir::prefill

#endif // PREFILL_CONVERSION_KERNELTILING_H
