//===- TiledOpVerifiers.cpp - verifiers of the ops of level `tiled` -------===//
// Each rule carries its number in docs/spec.md.
//===----------------------------------------------------------------------===//
#include "prefill/Dialect/Prefill/IR/Prefill.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// Indices of a tile: sequence, row_begin, row_end, kv_head and for one KV
/// block its number, for one split that split's.
constexpr size_t kBlockTileSize = 5;
constexpr size_t kSplitTileSize = 5;
constexpr size_t kRowTileSize = 4;

LogicalResult verifyShape(Operation *op, StringRef what, Value value,
                          ArrayRef<int64_t> expected) {
  auto type = cast<RankedTensorType>(value.getType());
  auto wanted =
      RankedTensorType::get(expected, Float32Type::get(op->getContext()));
  if (type != wanted)
    return op->emitOpError()
           << what << " has type " << type << ", expected " << wanted;
  return success();
}

/// The query of an attention op: as many columns as whole groups of heads of
/// the cache, in the cache's element type. Gives the number of query heads.
FailureOr<int64_t> verifyQuery(Operation *op, Value query, KVCacheType cache) {
  // ONLINE_ATTENTION-C1, MATERIALIZED_ATTENTION-C1
  auto type = cast<RankedTensorType>(query.getType());
  if (type.getRank() != 2 || type.isDynamicDim(1))
    return op->emitOpError() << "query has type " << type
                             << ", expected rank 2 with static columns";
  int64_t group = cache.getNumKvHeads() * cache.getHeadDimQk();
  if (type.getDimSize(1) == 0 || type.getDimSize(1) % group)
    return op->emitOpError()
           << "query has " << type.getDimSize(1)
           << " columns, expected a multiple of num_kv_heads * head_dim_qk = "
           << group;
  // ONLINE_ATTENTION-C2, MATERIALIZED_ATTENTION-C2
  if (type.getElementType() != cache.getDtype())
    return op->emitOpError()
           << "query has element type " << type.getElementType()
           << ", but the cache holds " << cache.getDtype();
  return type.getDimSize(1) / cache.getHeadDimQk();
}

/// ONLINE_ATTENTION-C3, MATERIALIZED_ATTENTION-C3: as for prefill.attention.
template <typename Attention> LogicalResult verifyScores(Attention op) {
  if (!op.getScale().isFinite())
    return op.emitOpError("scale is ")
           << op.getScale().convertToDouble() << ", expected a finite number";
  if (std::optional<int64_t> window = op.getSlidingWindow()) {
    if (*window < 1)
      return op.emitOpError("sliding_window is ")
             << *window << ", expected at least 1";
    if (!op.getCausal())
      return op.emitOpError("sliding_window is ")
             << *window << " without causal, expected causal attention";
  }
  if (std::optional<APFloat> softcap = op.getSoftcap())
    if (!softcap->isFinite() || softcap->convertToDouble() <= 0)
      return op.emitOpError("softcap is ")
             << softcap->convertToDouble() << ", expected a positive number";
  return success();
}

LogicalResult verifyTileSize(Operation *op, size_t size, size_t expected) {
  if (size != expected)
    return op->emitOpError()
           << "tile has " << size << " indices, expected " << expected;
  return success();
}

/// The output buffer of attention: [M, num_q_heads * head_dim_v].
LogicalResult verifyOut(Operation *op, Value out, int64_t columns) {
  auto type = cast<MemRefType>(out.getType());
  if (type.getRank() != 2 || type.getDimSize(1) != columns)
    return op->emitOpError()
           << "output has type " << type << ", expected rank 2 with " << columns
           << " columns";
  return success();
}

} // namespace

LogicalResult OnlineAttentionOp::verify() {
  KVCacheType cache = getCache().getType();
  FailureOr<int64_t> heads = verifyQuery(*this, getQuery(), cache);
  if (failed(heads) || failed(verifyScores(*this)))
    return failure();
  // ONLINE_ATTENTION-C9
  if (getNumSplits() && (*getNumSplits() < 2 || !getTile().empty()))
    return emitOpError("num_splits is ")
           << *getNumSplits() << (getTile().empty() ? "" : " in a tile")
           << ", expected at least 2, and none in a tile, whose block tells "
              "its split";
  int64_t rows = ShapedType::kDynamic;
  if (!getTile().empty()) {
    // ONLINE_ATTENTION-C4
    if (failed(verifyTileSize(*this, getTile().size(), kBlockTileSize)))
      return failure();
    // ONLINE_ATTENTION-C5
    LoweringConfigAttr config = getLoweringConfigAttr();
    if (!config || config.getBlockM() < 1 || config.getBlockKv() < 1)
      return emitOpError("of a tile has lowering_config ")
             << config
             << ", expected one with block_m and block_kv of at "
                "least 1";
    // ONLINE_ATTENTION-C6
    if (getCarry().size() != 3)
      return emitOpError("of a tile carries ")
             << getCarry().size()
             << " values, expected accumulator, row_max and row_sum";
    for (auto [carried, result] : llvm::zip(getCarry(), getResults()))
      if (carried.getType() != result.getType())
        return emitOpError("carries ")
               << carried.getType() << ", but returns " << result.getType();
    rows = config.getBlockM();
    *heads /= cache.getNumKvHeads();
  } else if (!getCarry().empty()) {
    // ONLINE_ATTENTION-C7
    return emitOpError("of all keys carries ")
           << getCarry().size() << " values, expected none";
  } else {
    *heads *= getNumSplits().value_or(1);
  }
  // ONLINE_ATTENTION-C8
  if (failed(verifyShape(*this, "accumulator", getAccumulator(),
                         {rows, *heads * cache.getHeadDimV()})) ||
      failed(verifyShape(*this, "row_max", getRowMax(), {rows, *heads})) ||
      failed(verifyShape(*this, "row_sum", getRowSum(), {rows, *heads})))
    return failure();
  return success();
}

LogicalResult AttentionNormalizeOp::verify() {
  // ATTENTION_NORMALIZE-C1
  auto accumulator = cast<RankedTensorType>(getAccumulator().getType());
  auto rowSum = cast<RankedTensorType>(getRowSum().getType());
  if (accumulator.getRank() != 2 || rowSum.getRank() != 2 ||
      accumulator.getDimSize(0) != rowSum.getDimSize(0) ||
      rowSum.getDimSize(1) < 1 ||
      accumulator.getDimSize(1) % rowSum.getDimSize(1))
    return emitOpError("accumulator has type ")
           << accumulator << " and row_sum " << rowSum
           << ", expected [rows, heads * head_dim_v] and [rows, heads]";
  // ATTENTION_NORMALIZE-C2
  bool tiled = !getTile().empty();
  if (tiled != static_cast<bool>(getOut()) ||
      tiled == static_cast<bool>(getResult()))
    return emitOpError("has to have either a tile and an output buffer or a "
                       "result");
  // ATTENTION_NORMALIZE-C3
  if (tiled)
    return verifyTileSize(*this, getTile().size(), kRowTileSize);
  // ATTENTION_NORMALIZE-C4
  auto result = cast<RankedTensorType>(getResult().getType());
  if (getSelectedRows() ? result.getRank() != 2 ||
                              result.getDimSize(1) != accumulator.getDimSize(1)
                        : result.getShape() != accumulator.getShape())
    return emitOpError("result has type ")
           << result << ", but the accumulator " << accumulator;
  return success();
}

LogicalResult AttentionPartialOp::verify() {
  // ATTENTION_PARTIAL-C1
  auto accumulator = cast<RankedTensorType>(getAccumulator().getType());
  auto rowSum = cast<RankedTensorType>(getRowSum().getType());
  if (accumulator.getRank() != 2 || rowSum.getRank() != 2 ||
      getRowMax().getType() != rowSum ||
      accumulator.getDimSize(0) != rowSum.getDimSize(0) ||
      rowSum.getDimSize(1) < 1 ||
      accumulator.getDimSize(1) % rowSum.getDimSize(1))
    return emitOpError("accumulator has type ")
           << accumulator << ", row_max " << getRowMax().getType()
           << " and row_sum " << rowSum
           << ", expected [rows, heads * head_dim_v] and twice [rows, heads]";
  // ATTENTION_PARTIAL-C2
  if (static_cast<int64_t>(getNumSplits()) < 2)
    return emitOpError("num_splits is ")
           << static_cast<int64_t>(getNumSplits()) << ", expected at least 2";
  // ATTENTION_PARTIAL-C3
  bool tiled = !getTile().empty();
  if (getOuts().size() != (tiled ? 2 : 0) ||
      getResults().size() != (tiled ? 0 : 2))
    return emitOpError("has to have either a tile and two buffers or two "
                       "results: output and log-sum-exp");
  Type expected[] = {accumulator, rowSum};
  if (!tiled) {
    // ATTENTION_PARTIAL-C5
    if (!llvm::equal(getResultTypes(), ArrayRef(expected)))
      return emitOpError("results have types (")
             << getResultTypes() << "), expected those of accumulator and "
             << "row_sum, (" << ArrayRef(expected) << ")";
    return success();
  }
  // ATTENTION_PARTIAL-C4
  if (failed(verifyTileSize(*this, getTile().size(), kSplitTileSize)))
    return failure();
  // ATTENTION_PARTIAL-C6
  for (auto [type, out] : llvm::zip(expected, getOuts())) {
    auto buffer = cast<MemRefType>(out.getType());
    int64_t columns =
        cast<RankedTensorType>(type).getDimSize(1) * getNumSplits();
    if (buffer.getRank() != 2 || !buffer.getElementType().isF32() ||
        buffer.isDynamicDim(1) || buffer.getDimSize(1) % columns)
      return emitOpError("buffer has type ")
             << buffer << ", expected f32 of rank 2 with a multiple of "
             << columns << " columns";
  }
  return success();
}

LogicalResult AttentionWorkgroupOp::verify() {
  // ATTENTION_WORKGROUP-C1
  if (getBlockQ() < 1)
    return emitOpError("block_q is ") << getBlockQ() << ", expected at least 1";
  // ATTENTION_WORKGROUP-C2
  if (getNumKvHeads() < 1)
    return emitOpError("num_kv_heads is ")
           << getNumKvHeads() << ", expected at least 1";
  return success();
}

LogicalResult MaterializedAttentionOp::verify() {
  KVCacheType cache = getCache().getType();
  FailureOr<int64_t> heads = verifyQuery(*this, getQuery(), cache);
  if (failed(heads) || failed(verifyScores(*this)))
    return failure();
  // MATERIALIZED_ATTENTION-C4
  if (failed(verifyTileSize(*this, getTile().size(), kRowTileSize)))
    return failure();
  // MATERIALIZED_ATTENTION-C5
  auto scores = cast<MemRefType>(getScores().getType());
  if (scores.getRank() != 3 || !scores.getElementType().isF32())
    return emitOpError("scores have type ")
           << scores << ", expected f32 [num_q_heads, M_pad, max_kv]";
  // MATERIALIZED_ATTENTION-C6
  return verifyOut(*this, getOut(), *heads * cache.getHeadDimV());
}
