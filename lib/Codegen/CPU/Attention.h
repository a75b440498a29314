//===- Attention.h - parts of the attention kernel's emitter ----*- C++ -*-===//
//
// A workgroup computes `block_q` query rows of one sequence for the query heads
// of one KV head. Its rows are (query row, head of the group) pairs, row
// r * group + g, so that a single query row of a GQA model still fills a
// microkernel. For every KV block it packs keys and values into panels once,
// and all rows use them.
//
// Rows of the output depend on absolute key positions alone: blocks without a
// visible key change nothing, bit for bit (a row's maximum stays, the rescaling
// factor is exactly 1 and probabilities are exactly 0). A prompt in one call
// and in chunks therefore gives the same bits.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_LIB_CODEGEN_CPU_ATTENTION_H
#define PREFILL_LIB_CODEGEN_CPU_ATTENTION_H

#include "prefill/Analysis/AttentionBlockRange.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/CPU/KernelABI.h"
#include <limits>

namespace mlir::prefill {

/// Static sizes of an attention kernel.
struct AttentionKernelShape {
  /// Of the packed operands: `CpuIsa::attentionType`.
  Type elementType;
  /// Of query, cache and output.
  Type storedType;
  int64_t headDimQk, headDimV;
  int64_t numKvHeads;
  int64_t group; // query heads of a KV head
  int64_t blockQ, blockKv;
  AttentionShape mask;
  /// Factor from q k^T to base-2 logits.
  double scoreScale;
  /// Elements from one row of query and output to the next.
  int64_t queryPitch = 0, outPitch = 0;
  /// The cache's pages are panels already.
  bool isPacked = false;
  /// Pages of bf16 that are multiplied as f32 are copied, once for all rows of
  /// a workgroup. Few rows split their pairs in place, which gives the same
  /// bits: this is set while their code is emitted.
  bool fewRows = false;
  bool canReadPages() const { return isPacked && elementType == storedType; }
  bool readsPages() const { return canReadPages() || (isPacked && fewRows); }

  int64_t numHeads() const { return numKvHeads * group; }
  int64_t rows() const { return blockQ * group; }
  /// Of the microkernels' right operands.
  Type panelType() const { return readsPages() ? storedType : elementType; }
  int64_t kPackSize() const { return kPack(panelType()); }
  /// Channels of a packed query row or key, zero-padded.
  int64_t depth() const { return llvm::alignTo(headDimQk, kPack(storedType)); }
  /// Columns of an accumulator row, zero-padded.
  int64_t columns() const { return llvm::alignTo(headDimV, kPanelN); }
  /// Of the panel of 32 keys.
  int64_t keyPanelElements() const { return depth() * kPanelN; }
  int64_t valuePanelElements() const { return columns() * kPanelN; }
};

/// Scratch of a thread.
struct AttentionScratch {
  Value query; // T [block_q * group, depth]
  // Panels of 32 keys; none where the cache's pages are only read in place.
  Value keys;   // T [block_kv / 32, depth / k_pack, 32, k_pack]
  Value values; // T [block_kv / 32, columns / 32, 32 / k_pack, 32, k_pack]
  // Of pages: the values of a sequence's last one, as stored.
  Value lastValues;
  Value accumulator;       // f32 [block_q * group, columns]
  Value rowMax;            // f32 [block_q * group]
  Value rowSum;            // f32 [block_q * group, 16]: a sum for each lane
  Value firstKey, numKeys; // i32 [block_q * group]: keys that a row sees
  // i64 [block_kv]: element offset of each key's head in the cache, or
  // [block_kv / 32] of each page's head
  Value keyOffsets;
  // Of one microkernel's rows, 8 or 16 (AMX):
  Value scores;        // f32 [rows, block_kv]
  Value probabilities; // T [rows, block_kv]; the scores' own place for f32
  Value shift;         // f32 [rows]: row_max, 0 for a row without a key so far
  Value rescale;       // f32 [rows]: factor of accumulator and sum
  Value largest;       // f32 [16, 16]: a row's largest score by lane (AMX)

  static AttentionScratch allocate(KernelBuilder &b, KernelABI &abi,
                                   const CpuIsa &isa,
                                   const AttentionKernelShape &shape);
};

/// A workgroup's rows at run time.
struct AttentionRows {
  Value sequence, rowBegin, rowEnd, kvHead;
  Value seqlenQ, seqlenKv;
  /// Row of the batch that rowBegin is.
  Value batchRow;
  /// Only the rows of logits_indices are stored, each at its index in there.
  bool selected = false;

  Value count(KernelBuilder &b) const { return b.sub(rowEnd, rowBegin); }
};

/// One KV block at run time.
struct AttentionBlock {
  Value firstKey; // block * block_kv
  Value numKeys;  // 1 to block_kv
  CacheView cache;
};

/// What all parts of the emitter need.
struct AttentionContext {
  KernelBuilder &b;
  const CpuIsa &isa;
  KernelABI &abi;
  AttentionKernelShape shape;
  AttentionScratch scratch;
};

// ---- Vectors (AttentionVectors.cpp)

inline constexpr float kNegativeInfinity =
    -std::numeric_limits<float>::infinity();
Value loadVector(KernelBuilder &b, Value memref, Value offset, int64_t lanes);
void storeVector(KernelBuilder &b, Value vector, Value memref, Value offset);
Value broadcast(KernelBuilder &b, Value scalar, int64_t lanes);
/// Calls `emit(offset, size)` for pieces of [0, count): `width` long, then
/// powers of two, so that no access leaves the range and none needs a mask.
void forEachPiece(int64_t count, int64_t width,
                  llvm::function_ref<void(int64_t, int64_t)> emit);
/// `width` elements of which `count` are read from `offset` on and the rest is
/// zero.
Value loadPadded(KernelBuilder &b, Value memref, Value offset, int64_t count,
                 int64_t width);
/// The larger of two vectors or scalars; the second where they do not compare.
Value maximum(KernelBuilder &b, Value lhs, Value rhs);
/// Lane r of the result, of as many lanes as there are rows: all lanes of
/// rows[r] combined, pairwise. At most as many rows as a row has lanes.
Value reduceRows(KernelBuilder &b, ValueRange rows,
                 llvm::function_ref<Value(Value, Value)> combine);
/// `rows[i][j]` becomes result[j][i] for n vectors of n 4-byte lanes.
SmallVector<Value> transposeLanes(KernelBuilder &b, ValueRange rows);

// ---- Rows (AttentionRows.cpp)

/// Narrows the rows to those from the first to the last one that logits_indices
/// name; without one the tile is that of an empty sequence.
void narrowToSelectedRows(KernelBuilder &b, const BatchView &batch,
                          AttentionRows &rows);
/// Calls `body(row, out)` for every row of the workgroup that is stored: its
/// number from rowBegin on, and the output's row.
void forEachStoredRow(KernelBuilder &b, const BatchView &batch,
                      const AttentionRows &rows,
                      llvm::function_ref<void(Value, Value)> body);

// ---- Packing (AttentionPack.cpp)

/// Copies the workgroup's query rows to scratch.
void packQuery(AttentionContext &context, const AttentionRows &rows,
               Value query);
/// Packs the keys and values of a block. Keys past the end of the sequence read
/// the last one again: finite values, whose scores the mask sets to -inf and
/// whose probabilities are exactly 0. Unused slots, which may hold NaN, are
/// never read.
///
/// Where the cache holds panels, their places are noted, and the values of the
/// sequence's last page copied, with zeros in the unused slots, if it isn't
/// full. Their keys may be NaN: the mask replaces the scores. Pages that are
/// copied as f32 are copied whole: values in unused slots are left out of the
/// product, whose steps are single keys then.
void packBlock(AttentionContext &context, const AttentionRows &rows,
               const AttentionBlock &block, BlockMask mask);

// ---- Online softmax (AttentionTile.cpp)

/// Sets the state of all rows to that before the first key.
void initRows(AttentionContext &context, const AttentionRows &rows);
/// One packed KV block for all rows of the workgroup.
void emitBlockForRows(AttentionContext &context, const AttentionRows &rows,
                      const AttentionBlock &block, BlockMask mask);
/// Stores accumulator / row_sum, 0 for a row without a key.
void storeRows(AttentionContext &context, const AttentionRows &rows, Value out);

// ---- Unfused (AttentionPlain.cpp)

void emitMaterialized(AttentionContext &context, const AttentionRows &rows,
                      const CacheView &cache, const ScoreView &scores,
                      Value query, Value out);

} // namespace mlir::prefill

#endif // PREFILL_LIB_CODEGEN_CPU_ATTENTION_H
