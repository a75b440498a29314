//===- AttentionTileTable.h - tile sizes of attention on CUDA ---*- C++ -*-===//
// prefill-select-lowering-strategy writes block_q and block_kv into the
// lowering_config of attention ops; the kernel's emitter derives the rest, how
// warps share a tile and where it lies in shared memory, from the same
// functions.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_ATTENTIONTILETABLE_H
#define PREFILL_CODEGEN_CUDA_ATTENTIONTILETABLE_H

#include "prefill/Codegen/CUDA/ChipTable.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"
#include <cstdint>

namespace mlir::prefill {

/// What the tiles of an attention kernel depend on. Elements have 2 bytes.
struct AttentionHeads {
  int64_t headDimQk, headDimV;
  /// Query heads of a KV head. They are rows of one tile, so that the keys and
  /// values in shared memory serve the whole group: bytes from the cache for a
  /// product fall by the group's size, and a short query still fills fragments.
  int64_t group;
  int64_t numKvHeads;
  bool causal = true;
  int64_t slidingWindow = 0;

  /// Channels of a query or key in shared memory, padded with zeros to the 16
  /// of one m16n8k16.
  int64_t depth() const;
  /// Columns of a value in shared memory: padded to the 16 of one ldmatrix.
  int64_t valueColumns() const;
};

struct CudaAttentionTile {
  int64_t blockQ;  ///< query rows of a workgroup; times group: its tile's rows
  int64_t blockKv; ///< keys of a step; a multiple of 16
};

/// How a workgroup computes a tile. Each warp owns `fragments` times 16 rows of
/// it and all keys, so that a row's maximum and sum never leave its quad.
struct AttentionLayout {
  int64_t warps;
  int64_t fragments;
  /// KV blocks that are in flight or in use.
  int64_t stages;
  /// Query fragments stay in registers; else they are read from shared memory
  /// for every KV block.
  bool queryInRegisters;

  // Bytes in shared memory.
  int64_t queryBytes, keyBytes, valueBytes, outBytes;
  /// Estimate for a thread; ptxas has the last word.
  int64_t registers;
  /// Blocks of an SM at a time, by that estimate.
  int64_t blocksPerSM;

  int64_t threads() const { return warps * 32; }
  int64_t rows() const { return warps * fragments * 16; }
  int64_t stageBytes() const { return keyBytes + valueBytes; }
  /// The query in registers passes through the last stage, which is filled
  /// after it was read; the output through the first.
  int64_t queryOffset() const {
    return (queryInRegisters ? stages - 1 : stages) * stageBytes();
  }
  int64_t sharedBytes() const;
};

/// The layout of a tile on a chip. The error is one line that names what does
/// not fit.
llvm::Expected<AttentionLayout> attentionLayout(const CudaChip &chip,
                                                const AttentionHeads &heads,
                                                CudaAttentionTile tile);

/// A sequence's part of a call: new tokens, and the keys they see, those of the
/// cache included. A number alone is a prompt on an empty cache.
struct AttentionCall {
  AttentionCall(int64_t seqlen) : queries(seqlen), keys(seqlen) {}
  AttentionCall(int64_t queries, int64_t keys) : queries(queries), keys(keys) {}
  int64_t queries, keys;
};

/// How well a call's tiles fill a chip: they are taken in the order of
/// prefill.attention_workgroup (the longest of a sequence first) by whichever
/// place on an SM is free.
struct AttentionWaves {
  int64_t workgroups = 0;
  /// Workgroups that run at a time.
  int64_t slots = 0;
  double waves = 0.0;
  /// KV blocks visited over slots * those of the slot that ends last: 1 when
  /// none waits.
  double efficiency = 0.0;
};
AttentionWaves attentionWaves(const CudaChip &chip, const AttentionHeads &heads,
                              CudaAttentionTile tile,
                              const AttentionLayout &layout,
                              AttentionCall call);

/// All tiles of the table that fit the chip. `given`: what somebody demands; 0:
/// anything.
llvm::SmallVector<CudaAttentionTile>
cudaAttentionTiles(const CudaChip &chip, const AttentionHeads &heads,
                   CudaAttentionTile given = {0, 0});
/// The estimated time of a call in a unit of its own; of a tile that fits.
double estimatedAttentionTime(const CudaChip &chip, const AttentionHeads &heads,
                              CudaAttentionTile tile,
                              const AttentionLayout &layout,
                              AttentionCall call);

/// The tile that is best over several calls among those that fit the chip: the
/// sum of its estimated times, each over the least that a tile takes for that
/// call, is the lowest. `plain`: the smallest one, what tiling is compared
/// against. `given`: what somebody demands; 0: anything.
llvm::Expected<CudaAttentionTile>
cudaAttentionTile(const CudaChip &chip, const AttentionHeads &heads,
                  llvm::ArrayRef<AttentionCall> calls, bool plain = false,
                  CudaAttentionTile given = {0, 0});

/// Tokens of calls whose attention may be split; more of them have tiles enough
/// for any chip, and outputs of splits would fill memory.
inline constexpr int64_t kMaxSplitRows = 128;
/// More splits cost more to combine than a chip's empty places are worth.
inline constexpr int64_t kMaxAttentionSplits = 16;
struct SplitAttention {
  CudaAttentionTile tile;
  int64_t splits;
};
/// Splits of the keys, a power of two up to kMaxAttentionSplits, and the tile
/// whose estimated times over the calls, of one sequence each, are the least
/// with them; 1 and `tile` where that is faster as a whole. Tiles have room in
/// registers for what splits need besides; their bits are their own, so that
/// they need not have as many keys as those of whole attention. `given`:
/// somebody demands `tile`, and only the number of splits is chosen: 1 where
/// its KV blocks would lie in two splits. An error: `tile` does not fit.
llvm::Expected<SplitAttention>
splitAttention(const CudaChip &chip, const AttentionHeads &heads,
               CudaAttentionTile tile, llvm::ArrayRef<AttentionCall> calls,
               bool given = false);

/// Largest head size: its sums fill the registers of a warp with 16 rows.
inline constexpr int64_t kMaxAttentionHeadDim = 256;

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CUDA_ATTENTIONTILETABLE_H
