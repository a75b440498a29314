//===- KernelABI.h - what a CPU kernel is called with -----------*- C++ -*-===//
// Level `kernel`: every argument of a tiled kernel is flattened to bare
// pointers and sizes. The order is the contract with the executor:
//
//   tensor, memref  -> memref<1xT>
//   batch           -> M_pad, num_seqs, R_pad: index; tokens, positions:
//                      memref<1xi32>; slot_mapping: memref<1xi64>; cu_seqlens,
//                      kv_lens, block_table: memref<1xi32>;
//                      block_table_stride: index; logits_indices: memref<1xi32>
//   kv_cache        -> k, v: memref<1xT>; block_stride, token_stride,
//                      head_stride: index, in elements
//   prefill.score   -> memref<1xf32>, max_kv: index
//
// then wg_begin, wg_end: index and scratch: memref<1xi8>, aligned to 64 bytes,
// `prefill.scratch_bytes` long.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CPU_KERNELABI_H
#define PREFILL_CODEGEN_CPU_KERNELABI_H

#include "prefill/Codegen/Common/KernelBuilder.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {

/// The batch's integers. Sizes are index values, arrays memref<?xT>.
struct BatchView {
  Value rows;              // M_pad
  Value numSeqs;           // S
  Value logitRows;         // R_pad
  Value tokens, positions; // i32 [M_pad]
  Value slotMapping;       // i64 [M_pad], -1: do not write
  Value cuSeqlens;         // i32 [S + 1]
  Value kvLens;            // i32 [S]
  Value blockTable;        // i32 [S, blockTableStride]
  Value blockTableStride;
  Value logitsIndices; // i32 [R_pad]
};

/// K and V of one layer: flat memref<?xT> and strides in elements.
struct CacheView {
  KVCacheType type;
  Value key, value;
  Value blockStride, tokenStride, headStride;

  /// Element offset of head 0 in a slot (block * block_size + offset, index);
  /// of head 0's page for paged_vnni.
  Value slotOffset(KernelBuilder &b, Value slot) const;
  /// Element offset of head 0 of token `token` of sequence `seq`, through the
  /// block table. Not for paged_vnni, whose tokens lie apart.
  Value tokenOffset(KernelBuilder &b, const BatchView &batch, Value seq,
                    Value token) const;
  /// Element offset of head 0 of the block that holds token `token` of
  /// sequence `seq`: with headOffset the page of a head for paged_vnni.
  Value blockOffset(KernelBuilder &b, const BatchView &batch, Value seq,
                    Value token) const;
  /// `offset` advanced to KV head `head`.
  Value headOffset(KernelBuilder &b, Value offset, Value head) const;
};

/// The score matrix of unfused attention: f32 [num_q_heads, M_pad, max_kv].
struct ScoreView {
  Value buffer; // flat
  Value maxKv;
};

/// Builds a kernel's function from its tiled form and keeps what became of
/// every argument.
class KernelABI {
public:
  /// Creates the function behind `tiled`, under a temporary name, with a body
  /// that holds the views and `return`. Fails with a diagnostic on an argument
  /// that has no flattening. `finish` replaces the tiled function by it.
  /// `padRows`: rows of activations lie as `rowPitch` (ActivationBuffers.h)
  /// says.
  static FailureOr<KernelABI> create(func::FuncOp tiled, bool padRows = false);

  func::FuncOp getFunction() const { return function; }
  /// A builder in front of the kernel's `return`.
  KernelBuilder bodyBuilder() const;

  // What an argument of the tiled function became.
  /// Tensor or memref argument with its shape; a dynamic row count is
  /// M_pad or R_pad by the op's domain. Rank 4 weights come flat.
  Value view(Value argument) const { return views.lookup(argument); }
  /// The same, rank 1.
  Value flat(Value argument) const { return flats.lookup(argument); }
  /// Elements from one row to the next of an argument with `rowsOf`.
  int64_t rowPitch(Value argument) const { return pitches.lookup(argument); }
  /// Row count of a tensor or memref argument whose first size is dynamic.
  Value rowsOf(Value argument) const { return rowCounts.lookup(argument); }
  CacheView cache(Value argument) const { return caches.lookup(argument); }
  ScoreView score(Value argument) const { return scores.lookup(argument); }
  bool hasBatch() const { return bool(batchView.rows); }
  const BatchView &batch() const { return batchView; }

  Value workgroupBegin, workgroupEnd;

  /// `count` elements of the thread's scratch as memref<count x T>, aligned to
  /// 64 bytes, from the next free byte on. Adds to prefill.scratch_bytes. The
  /// view stands in the entry block and dominates every use.
  Value allocateScratch(Type elementType, int64_t count);
  /// An index that is always 0, from an argument: LLVM cannot know.
  Value unknownZero();
  int64_t scratchBytes() const { return scratchUsed; }

  /// Gives the kernel the tiled function's name and place, sets
  /// prefill.scratch_bytes and erases the tiled function.
  void finish(func::FuncOp tiled);

private:
  func::FuncOp function;
  BatchView batchView;
  DenseMap<Value, Value> views, flats, rowCounts;
  DenseMap<Value, int64_t> pitches;
  DenseMap<Value, CacheView> caches;
  DenseMap<Value, ScoreView> scores;
  Value scratch, zero;
  int64_t scratchUsed = 0;
};

/// cloneTiledBody into the kernel of `abi`: scf.forall becomes a loop over
/// [wg_begin, wg_end).
LogicalResult convertTiledBody(
    func::FuncOp tiled, KernelABI &abi,
    llvm::function_ref<LogicalResult(Operation *, KernelBuilder &, IRMapping &)>
        emitOp);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_KERNELABI_H
