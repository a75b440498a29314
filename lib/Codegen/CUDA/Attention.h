//===- Attention.h - parts of the attention kernel's emitter ----*- C++ -*-===//
//
// After FlashAttention-2 (Dao 2023). A workgroup computes `block_q` query rows
// of one sequence for the query heads of one KV head: row r of its tile is head
// r % group of query row r / group, so that keys and values in shared memory
// serve all heads of the group. A warp owns 16 or 32 rows of the tile and all
// keys: scores and probabilities stay in its registers, a row's maximum and sum
// in the four lanes that hold the row.
//
// Keys and values come through a ring of stages filled by cp.async; there is
// one barrier for each KV block. The ring runs on from one KV loop to the next.
//
// Rows of the output depend on absolute key positions alone: a block without a
// visible key changes nothing, bit for bit (the maximum stays, the rescaling
// factor is exactly 1, probabilities are exactly 0). Without splits a prompt in
// one call and in chunks therefore gives the same bits; with them it does not,
// since a row's keys are then summed in as many parts as its schedule says.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_LIB_CODEGEN_CUDA_ATTENTION_H
#define PREFILL_LIB_CODEGEN_CUDA_ATTENTION_H

#include "prefill/Analysis/AttentionSplits.h"
#include "prefill/Codegen/CUDA/AsyncCopy.h"
#include "prefill/Codegen/CUDA/AttentionTileTable.h"
#include "prefill/Codegen/CUDA/Fragments.h"
#include "prefill/Codegen/CUDA/KernelFrame.h"

namespace mlir::prefill {

/// Static sizes of an attention kernel.
struct AttentionKernelShape {
  Type elementType; // f16 or bf16: query, cache and output
  AttentionHeads heads;
  int64_t blockQ, blockKv;
  /// Splits of the keys, each a workgroup's; 1: none.
  int64_t numSplits = 1;
  AttentionShape mask;
  /// Factor from q k^T to base-2 logits.
  double scoreScale;
  /// The factor waits until after the row maximum, where it is a part of one
  /// fused multiply-add with the subtraction; a factor that is not positive
  /// cannot, since the largest score would not be the largest logit.
  bool scalesLate() const { return scoreScale > 0.0 && scoreScale != 1.0; }
  AttentionLayout layout;

  int64_t group() const { return heads.group; }
  int64_t numHeads() const { return heads.numKvHeads * heads.group; }
  int64_t queryRowElements() const { return numHeads() * heads.headDimQk; }
  int64_t outRowElements() const { return numHeads() * heads.headDimV; }

  SwizzledTile queryTile() const {
    return {layout.rows(), heads.depth() / kChunkElements};
  }
  SwizzledTile keyTile() const {
    return {blockKv, heads.depth() / kChunkElements};
  }
  SwizzledTile valueTile() const {
    return {blockKv, heads.valueColumns() / kChunkElements};
  }
  SwizzledTile outTile() const {
    return {layout.rows(), heads.headDimV / kChunkElements};
  }
  /// Tiles of 8 columns of the accumulator.
  int64_t columnTiles() const { return heads.headDimV / kMmaN; }
};

/// A workgroup's rows at run time; all i32 and the same for all threads.
struct AttentionRows {
  Value sequence, rowBegin, kvHead;
  Value count; // rows of the tile, 0 in a surplus workgroup
  Value seqlenQ, seqlenKv;
  /// Row of the batch that rowBegin is.
  Value batchRow;
  /// Behind the last key of the blocks that are visited: the last one that any
  /// row of the tile sees, or the sequence's where no block is left out; of a
  /// split no later than its own.
  Value endKey;
  Value split; // null without splits

  /// All of them in one register of a warp, one in each of its first lanes, and
  /// back: what is needed between the KV loops stays out of the way in them.
  Value spread(CudaBuilder &b, Value lane) const;
  static AttentionRows gather(CudaBuilder &b, Value word, bool hasSplit);
};

/// What a warp keeps of its rows from one KV block to the next; f32.
struct AttentionState {
  SmallVector<Value> accumulator; // [fragment][column tile][4]
  SmallVector<Value> rowMax;      // [fragment][row g, row g + 8]
  SmallVector<Value> rowSum;      // the same, of this lane's keys alone

  static AttentionState initial(CudaBuilder &b,
                                const AttentionKernelShape &shape);
  SmallVector<Value> pack() const;
  static AttentionState unpack(const AttentionKernelShape &shape,
                               ValueRange values);
};

// ---- Tile scheduler (AttentionScheduler.cpp)

/// The rows of workgroup `workgroup` (i32), as prefill.attention_workgroup
/// defines them: in a sequence the last tile, which has the most keys, first.
/// Only sequence, kvHead, rowBegin, count and seqlenQ are meaningful in a
/// surplus workgroup.
AttentionRows emitAttentionRows(CudaBuilder &b, const CudaBatch &batch,
                                Value workgroup,
                                const AttentionKernelShape &shape);

/// Keys that query row `row` (i32) of the sequence sees.
KeyRange<Value> emitVisibleKeys(CudaBuilder &b,
                                const AttentionKernelShape &shape,
                                const AttentionRows &rows, Value row);

/// Keys of the rows' split.
KeyRange<Value> emitSplitKeys(CudaBuilder &b, const AttentionKernelShape &shape,
                              const AttentionRows &rows);

/// 0 (i32), by a way that the compiler cannot see through: what it is added to
/// is computed anew instead of being kept in registers.
Value emitUnknownZero(CudaBuilder &b, const CudaBatch &batch);

// ---- Copies to shared memory (AttentionCopy.cpp)

/// Issues the copies of the tile's query rows; rows past the last and padding
/// become zeros.
void emitQueryCopy(CudaBuilder &b, const AttentionKernelShape &shape,
                   const AttentionRows &rows, Value query, Value shared);

/// Which rows and which chunk of a tile a thread copies.
struct RowCopy {
  RowCopy(CudaBuilder &b, const SwizzledTile &tile, int64_t threads,
          int64_t headDim);

  int64_t rowStep;
  Value firstRow, chunk;      // i32
  Value takesPart;            // i1, null: every thread does
  Value hasData;              // i1, false for padding; null: true
  SmallVector<Value> offsets; // of the rows' chunks in the tile: i32, bytes
};

/// Copies keys and values of a KV block through the cache's layout.
class KVBlockCopy {
public:
  /// Computes what is the same for all blocks, at the builder's place.
  KVBlockCopy(CudaBuilder &b, const AttentionKernelShape &shape,
              const AttentionRows &rows, const CudaBatch &batch,
              const CudaCache &cache);

  /// Entries of the block table for the keys that this thread copies of a
  /// block (i32); none where a sequence is one block of the cache. They are
  /// loaded a block ahead of their use, the last page's for all keys behind it.
  SmallVector<Value> loadPages(CudaBuilder &b, Value block) const;
  int64_t numPages() const;
  /// Issues the copies; what lies past `endKey` becomes zeros, so that values
  /// of unused slots, which may be NaN, meet no probability of 0.
  void issue(CudaBuilder &b, Value block, ValueRange pages, Value keyShared,
             Value valueShared) const;

private:
  struct Side {
    RowCopy copy;
    Value first; // pointer to the thread's chunk of the sequence's first key
    StringRef site;
  };
  bool hasOnePattern() const;
  Value keyOf(CudaBuilder &b, Value block, const RowCopy &copy,
              int64_t i) const;
  Value elementOf(CudaBuilder &b, Value key, Value page, Value again) const;

  const AttentionKernelShape &shape;
  CudaCache cache;
  Value endKey, lastPage;     // i32
  Value zero;                 // emitUnknownZero
  Value table;                // the sequence's row of the block table
  SmallVector<Side, 2> sides; // keys, values
};

// ---- Masks (AttentionMask.cpp)

/// Which keys each of a lane's rows sees.
class AttentionMask {
public:
  /// Computes the rows' key ranges, at the builder's place.
  AttentionMask(CudaBuilder &b, const AttentionKernelShape &shape,
                const AttentionRows &rows, Value lane, Value warpRow);
  /// Replaces scores of keys that their row does not see by -inf.
  /// `scores`: [fragment][key tile][4].
  void apply(CudaBuilder &b, Value block, MutableArrayRef<Value> scores) const;

private:
  const AttentionKernelShape &shape;
  SmallVector<Value> end; // [fragment][row]
  Value column;           // of the lane in a key tile
};

// ---- Online softmax (AttentionSoftmax.cpp)

/// Brings the state to the maxima of a block's scores and returns its
/// probabilities, rounded to the element type: a word for each two keys of a
/// row, [fragment][key tile][row g, row g + 8]. Rounded at once they take half
/// of the registers. `hasMask`: a row may have seen no key yet.
SmallVector<Value> emitOnlineSoftmax(CudaBuilder &b,
                                     const AttentionKernelShape &shape,
                                     bool hasMask, ArrayRef<Value> scores,
                                     AttentionState &state);

// ---- Mainloop (AttentionMainloop.cpp)

/// The two products over KV blocks in shared memory.
class AttentionMainloop {
public:
  /// Computes the lanes' addresses, at the builder's place.
  AttentionMainloop(CudaBuilder &b, const AttentionKernelShape &shape,
                    Value lane, Value warpRow);

  /// Reads the query fragments, which then stay in registers.
  void loadQuery(CudaBuilder &b, Value queryShared);
  /// S = Q K^T, scaled unless that comes late: [fragment][key tile][4].
  /// `queryShared` is not looked at when the query is in registers.
  SmallVector<Value> scores(CudaBuilder &b, Value queryShared,
                            Value keyShared) const;
  /// accumulator += P V, with what emitOnlineSoftmax returns.
  void addValues(CudaBuilder &b, ArrayRef<Value> probabilities,
                 Value valueShared, AttentionState &state) const;

private:
  SmallVector<Value> readQuery(CudaBuilder &b, Value queryShared,
                               int64_t fragment, int64_t step) const;

  const AttentionKernelShape &shape;
  FragmentReader query, key, value;
  SmallVector<SmallVector<Value>> queryWords; // [fragment][step]
};

// ---- Output (AttentionOutput.cpp)

/// A row's sum over the lanes that hold parts of it.
Value emitRowSum(CudaBuilder &b, const AttentionState &state, int64_t row);
/// 1 / sum, 0 where the row sees no key: then its output is exactly 0.
Value emitNormalizer(CudaBuilder &b, Value sum);

/// accumulator / row_sum, 0 for a row without a key, through shared memory to
/// the output in whole rows. All of the block's warps call it; its stages are
/// free afterwards.
void emitAttentionOutput(CudaBuilder &b, const AttentionKernelShape &shape,
                         const AttentionRows &rows, const CudaBatch &batch,
                         const AttentionState &state, Value shared, Value out);

// ---- Output of a split (AttentionPartial.cpp)

/// Buffers of a split's results.
struct AttentionPartial {
  Value outputs, lse;
};
/// accumulator / row_sum, in f32, and ln(2) * row_max + ln(row_sum), from
/// registers.
void emitAttentionPartial(CudaBuilder &b, const AttentionKernelShape &shape,
                          const AttentionRows &rows, const CudaBatch &batch,
                          const AttentionState &state,
                          const AttentionPartial &to);
/// The log-sum-exp, -inf, of a tile that sees no key of the split. Its output
/// is not written.
void emitEmptyPartial(CudaBuilder &b, const AttentionKernelShape &shape,
                      const AttentionRows &rows, const AttentionPartial &to);

// ---- Unfused (AttentionPlain.cpp)

/// Warps of the unfused kernel.
inline constexpr int64_t kPlainAttentionWarps = 4;
void emitMaterializedAttention(CudaBuilder &b,
                               const AttentionKernelShape &shape,
                               const AttentionRows &rows,
                               const CudaBatch &batch, const CudaCache &cache,
                               const CudaScores &scores, Value query,
                               Value out);

} // namespace mlir::prefill

#endif // PREFILL_LIB_CODEGEN_CUDA_ATTENTION_H
