//===- ModelOpVerifiers.cpp - verifiers of the ops of level `model` -------===//
// Each rule carries its number in docs/spec.md.
//===----------------------------------------------------------------------===//
#include "ShapeChecks.h"

using namespace mlir;
using namespace mlir::prefill;

LogicalResult EmbedOp::verify() {
  if (failed(verifyConstant(*this, "table", getTable(), 2)) ||
      failed(verifyActivation(*this, "result", getResult())))
    return failure();
  // EMBED-C1
  if (channelsOf(getResult()) != channelsOf(getTable()))
    return emitOpError("result is ")
           << getType() << " but table is " << getTable().getType()
           << ": their channels must agree";
  return success();
}

LogicalResult RMSNormOp::verify() {
  // RMS_NORM-C1
  if (failed(verifyActivation(*this, "input", getInput())) ||
      failed(verifyActivation(*this, "result", getResult())) ||
      failed(
          verifySameShape(*this, "result", getResult(), "input", getInput())) ||
      failed(verifyConstant(*this, "gain", getGain(), 1)))
    return failure();
  int64_t channels = channelsOf(getInput()), group = channels;
  if (std::optional<uint64_t> headDim = getHeadDim()) {
    group = *headDim;
    // RMS_NORM-C2
    if (group < 1 || channels % group)
      return emitOpError("head_dim is ")
             << group << " but input has " << channels
             << " channels: head_dim must divide them";
  }
  // RMS_NORM-C3
  int64_t gains = getGain().getType().getDimSize(0);
  if (gains != group)
    return emitOpError("gain is ")
           << getGain().getType() << " but "
           << (getHeadDim() ? "head_dim is " : "the channels of input are ")
           << group << ": they must agree";
  // RMS_NORM-C4
  return verifyEpsilon(*this, getEps());
}

/// Shared by linear and lm_head, whose numbers differ: x [M, K], w [N, K], y
/// [M, N].
static LogicalResult verifyProduct(Operation *op, Value input, Value weight,
                                   Value result) {
  if (failed(verifyActivation(op, "input", input)) ||
      failed(verifyConstant(op, "weight", weight, 2)) ||
      failed(verifyActivation(op, "result", result)))
    return failure();
  // LINEAR-C1, LM_HEAD-C1
  if (channelsOf(weight) != channelsOf(input))
    return op->emitOpError("weight is ")
           << weight.getType() << " but input has " << channelsOf(input)
           << " channels: K must agree";
  // LINEAR-C2, LM_HEAD-C2
  if (rowsOf(weight) != channelsOf(result))
    return op->emitOpError("weight is ")
           << weight.getType() << " but result has " << channelsOf(result)
           << " channels: N must agree";
  return verifySameRows(op, "result", result, "input", input);
}

LogicalResult LinearOp::verify() {
  if (failed(verifyProduct(*this, getInput(), getWeight(), getResult())))
    return failure();
  if (!getBias())
    return success();
  if (failed(verifyConstant(*this, "bias", getBias(), 1)))
    return failure();
  // LINEAR-C3
  if (getBias().getType().getDimSize(0) != channelsOf(getResult()))
    return emitOpError("bias is ")
           << getBias().getType() << " but result has "
           << channelsOf(getResult()) << " channels: N must agree";
  return success();
}

LogicalResult LMHeadOp::verify() {
  if (failed(verifyProduct(*this, getInput(), getWeight(), getResult())))
    return failure();
  // LM_HEAD-C3
  if (!getType().getElementType().isF32())
    return emitOpError("result is ")
           << getType() << ", expected f32 elements: logits are not rounded";
  return success();
}

LogicalResult RopeOp::verify() {
  // ROPE-C1
  if (failed(verifyActivation(*this, "input", getInput())) ||
      failed(verifyActivation(*this, "result", getResult())) ||
      failed(
          verifySameShape(*this, "result", getResult(), "input", getInput())))
    return failure();
  // ROPE-C2
  int64_t headDim = getHeadDim(), channels = channelsOf(getInput());
  if (headDim < 1 || channels % headDim)
    return emitOpError("head_dim is ")
           << headDim << " but input has " << channels
           << " channels: head_dim must divide them";
  // ROPE-C3
  int64_t rotaryDim = getRope().getRotaryDim();
  if (rotaryDim > headDim)
    return emitOpError("rope has rotary_dim ")
           << rotaryDim << " but head_dim is " << headDim
           << ": rotary_dim must not be larger";
  if (!getTable())
    return success();
  if (failed(verifyConstant(*this, "table", getTable(), 2)))
    return failure();
  // ROPE-C4
  RankedTensorType table = getTable().getType();
  if (!table.getElementType().isF32() || table.getDimSize(1) != rotaryDim)
    return emitOpError("table is ")
           << table << " but rotary_dim is " << rotaryDim
           << ": expected f32 [max_position, rotary_dim]";
  return success();
}

LogicalResult KVAppendOp::verify() {
  if (failed(verifyActivation(*this, "key", getKey())) ||
      failed(verifyActivation(*this, "value", getValue())))
    return failure();
  KVCacheType cache = getCache().getType();
  int64_t heads = cache.getNumKvHeads();
  // KV_APPEND-C1
  if (channelsOf(getKey()) != heads * cache.getHeadDimQk())
    return emitOpError("key is ")
           << getKey().getType() << " but the cache has " << heads
           << " heads with head_dim_qk " << cache.getHeadDimQk()
           << ": expected " << heads * cache.getHeadDimQk() << " channels";
  // KV_APPEND-C2
  if (channelsOf(getValue()) != heads * cache.getHeadDimV())
    return emitOpError("value is ")
           << getValue().getType() << " but the cache has " << heads
           << " heads with head_dim_v " << cache.getHeadDimV() << ": expected "
           << heads * cache.getHeadDimV() << " channels";
  return verifySameRows(*this, "value", getValue(), "key", getKey());
}

/// What attention over splits of the keys returns: f32 outputs of every split,
/// `channels` each, and a log-sum-exp for each of their heads.
static LogicalResult verifySplits(AttentionOp op, int64_t numQHeads,
                                  int64_t channels) {
  if (!op.getNumSplits()) {
    // ATTENTION-C10
    if (op.getLse())
      return op.emitOpError("has a second result without num_splits; it is the "
                            "log-sum-exp of splits");
    return success();
  }
  // ATTENTION-C8
  int64_t splits = *op.getNumSplits();
  if (splits < 2)
    return op.emitOpError("num_splits is ")
           << splits << ", expected at least 2";
  // ATTENTION-C9
  if (op.getSelectedRows())
    return op.emitOpError("has num_splits = ")
           << splits << " and selected_rows; the rows are selected behind "
           << "prefill.combine_splits";
  // ATTENTION-C10
  if (!op.getLse())
    return op.emitOpError("has num_splits = ")
           << splits << " and one result, expected outputs and log-sum-exp";
  if (failed(verifyActivation(op, "log-sum-exp", op.getLse())) ||
      failed(verifySameRows(op, "log-sum-exp", op.getLse(), "query",
                            op.getQuery())))
    return failure();
  RankedTensorType lse = op.getLse().getType();
  if (!op.getResult().getType().getElementType().isF32() ||
      !lse.getElementType().isF32() || lse.getDimSize(1) != splits * numQHeads)
    return op.emitOpError("has num_splits = ")
           << splits << " and results " << op.getResult().getType() << " and "
           << lse << ", expected f32 with " << splits * channels << " and "
           << splits * numQHeads << " channels";
  return success();
}

LogicalResult AttentionOp::verify() {
  if (failed(verifyActivation(*this, "query", getQuery())) ||
      failed(verifyActivation(*this, "result", getResult())))
    return failure();
  if (!getSelectedRows() &&
      failed(verifySameRows(*this, "result", getResult(), "query", getQuery())))
    return failure();
  KVCacheType cache = getCache().getType();
  // ATTENTION-C1
  int64_t channels = channelsOf(getQuery()), headDim = cache.getHeadDimQk();
  if (channels % headDim)
    return emitOpError("query is ")
           << getQuery().getType() << " but the cache has head_dim_qk "
           << headDim << ": head_dim_qk must divide the channels";
  // ATTENTION-C2
  int64_t numQHeads = channels / headDim;
  if (numQHeads % cache.getNumKvHeads())
    return emitOpError("query is ")
           << getQuery().getType() << ", which is " << numQHeads
           << " heads, but the cache has " << cache.getNumKvHeads()
           << ": num_kv_heads must divide num_q_heads";
  // ATTENTION-C3
  int64_t channelsV = numQHeads * cache.getHeadDimV();
  int64_t expected = channelsV * getNumSplits().value_or(1);
  if (channelsOf(getResult()) != expected)
    return emitOpError("result is ")
           << getResult().getType() << " but there are " << numQHeads
           << " query heads with head_dim_v " << cache.getHeadDimV()
           << ": expected " << expected << " channels";
  // ATTENTION-C4
  if (!getScale().isFinite())
    return emitOpError("scale is ")
           << getScale().convertToDouble() << ", expected a finite number";
  if (getSlidingWindow()) {
    // ATTENTION-C5
    int64_t window = *getSlidingWindow();
    if (window < 1)
      return emitOpError("sliding_window is ")
             << window << ", expected at least 1, the row's own key";
    // ATTENTION-C6
    if (!getCausal())
      return emitOpError("has sliding_window ")
             << window
             << " but is not causal: a window ends at the row's own "
                "position";
  }
  // ATTENTION-C7
  if (std::optional<APFloat> cap = getSoftcap())
    if (!cap->isFinite() || !(cap->convertToDouble() > 0))
      return emitOpError("softcap is ")
             << cap->convertToDouble() << ", expected a positive number";
  return verifySplits(*this, numQHeads, channelsV);
}

LogicalResult GatedActOp::verify() {
  if (failed(verifyActivation(*this, "gate", getGate())) ||
      failed(verifyActivation(*this, "up", getUp())) ||
      failed(verifyActivation(*this, "result", getResult())))
    return failure();
  // GATED_ACT-C1
  if (failed(verifySameShape(*this, "up", getUp(), "gate", getGate())))
    return failure();
  // GATED_ACT-C2
  return verifySameShape(*this, "result", getResult(), "gate", getGate());
}

LogicalResult AddOp::verify() {
  if (failed(verifyActivation(*this, "lhs", getLhs())) ||
      failed(verifyActivation(*this, "rhs", getRhs())) ||
      failed(verifyActivation(*this, "result", getResult())))
    return failure();
  // ADD-C1
  if (failed(verifySameShape(*this, "rhs", getRhs(), "lhs", getLhs())))
    return failure();
  // ADD-C2
  return verifySameShape(*this, "result", getResult(), "lhs", getLhs());
}

LogicalResult ScaleOp::verify() {
  // SCALE-C1
  if (failed(verifyActivation(*this, "input", getInput())) ||
      failed(verifyActivation(*this, "result", getResult())) ||
      failed(
          verifySameShape(*this, "result", getResult(), "input", getInput())))
    return failure();
  // SCALE-C2
  if (!getFactor().isFinite())
    return emitOpError("factor is ")
           << getFactor().convertToDouble() << ", expected a finite number";
  return success();
}

LogicalResult SelectRowsOp::verify() {
  if (failed(verifyActivation(*this, "input", getInput())) ||
      failed(verifyActivation(*this, "result", getResult())))
    return failure();
  // SELECT_ROWS-C1: rows are M and R, which differ.
  if (channelsOf(getResult()) != channelsOf(getInput()))
    return emitOpError("result is ")
           << getType() << " but input is " << getInput().getType()
           << ": their channels must agree";
  return success();
}
