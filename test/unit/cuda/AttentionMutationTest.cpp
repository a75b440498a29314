//===- AttentionMutationTest.cpp - attention kernels, broken --------------===//
#include "CudaAttention.h"
#include "MutationTrial.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Matchers.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace prefill_test;

namespace {

class AttentionSubject : public Subject {
public:
  AttentionSubject(AttentionProblem problem, std::vector<Sequence> sequences,
                   int64_t paddedRows = 3)
      : problem(std::move(problem)), sequences(std::move(sequences)),
        paddedRows(paddedRows) {}

  bool compile(const std::function<bool(ModuleOp)> &edit) override {
    attention = std::make_unique<CudaAttention>(problem, edit);
    return attention->ok();
  }
  void check(uint64_t seed) override {
    attention->check(sequences, paddedRows, seed);
  }
  std::optional<Report> report() const override { return attention->report; }
  LaunchCounters counters() const override { return attention->counters; }

private:
  AttentionProblem problem;
  std::vector<Sequence> sequences;
  int64_t paddedRows;
  std::unique_ptr<CudaAttention> attention;
};

constexpr auto slt = LLVM::ICmpPredicate::slt;
constexpr auto sle = LLVM::ICmpPredicate::sle;
constexpr auto sge = LLVM::ICmpPredicate::sge;
constexpr auto sgt = LLVM::ICmpPredicate::sgt;

constexpr int64_t kSplits = 3;

// Words: query, keys, values, strides of block, token and head.
constexpr unsigned kKeys = 1, kValues = 2;
constexpr unsigned kBlockStride = 3, kTokenStride = 4, kHeadStride = 5;

AttentionProblem problemOf(int64_t headDim, const std::string &layout) {
  AttentionProblem p;
  p.headDimQk = p.headDimV = headDim;
  p.blockQ = 16;
  p.blockKv = 32;
  p.scale = 0.18;
  p.setLayout(layout);
  return p;
}

/// The workgroup's number modulo the KV heads: the next one.
Value nextKVHead(OpBuilder &b, Operation *op, ValueRange operands) {
  if (!isa<LLVM::URemOp>(op) || !operands[0].getDefiningOp<NVVM::BlockIdXOp>())
    return {};
  Value next = LLVM::AddOp::create(b, op->getLoc(), operands[0],
                                   constantLike(b, operands[0], 1));
  return LLVM::URemOp::create(b, op->getLoc(), next, operands[1]);
}

/// Rows of a tile by heads of the group, as if it had one head more.
Edit widerGroup(int64_t group) {
  return [=](OpBuilder &b, Operation *op, ValueRange operands) -> Value {
    if (!isa<LLVM::UDivOp>(op) || !isConstant(operands[1], group))
      return {};
    return LLVM::UDivOp::create(b, op->getLoc(), operands[0],
                                constantLike(b, operands[0], group + 1));
  };
}

/// `begin <= key` for the key behind this one.
Value widerWindow(OpBuilder &b, Operation *op, ValueRange operands) {
  auto compare = dyn_cast<LLVM::ICmpOp>(op);
  if (!compare || compare.getPredicate() != sle)
    return {};
  Value next = LLVM::AddOp::create(b, op->getLoc(), operands[1],
                                   constantLike(b, operands[1], 1));
  return LLVM::ICmpOp::create(b, op->getLoc(), sle, operands[0], next);
}

/// The output's chunks are constants, which the permutation is XORed with.
Value chunkInPlace(OpBuilder &, Operation *op, ValueRange operands) {
  return isa<LLVM::XOrOp>(op) && matchPattern(operands[1], m_Constant())
             ? operands[1]
             : Value();
}

/// Products of what a loop carries and an exponential: the state brought to a
/// new maximum.
Value dropRescale(OpBuilder &, Operation *op, ValueRange operands) {
  bool rescales = isa<LLVM::FMulOp>(op) && isa<BlockArgument>(operands[0]) &&
                  operands[1].getDefiningOp<LLVM::CallIntrinsicOp>();
  return rescales ? operands[0] : Value();
}

// Several sequences, pages, two KV heads and two query heads for each.
TEST(AttentionMutation, Paged) {
  AttentionSubject subject(problemOf(32, "paged_nhd"),
                           {{100, 100}, {33, 97, 2}, {1, 70, 3}});
  expectCaught(
      subject,
      {
          {"barrier attention.query_ready dropped",
           dropBarriers("attention.query_ready"),
           "shared-memory race or read of unwritten shared memory"},
          {"barrier attention.stage_ready dropped",
           dropBarriers("attention.stage_ready"), "shared-memory race"},
          {"barrier attention.stages_free dropped",
           dropBarriers("attention.stages_free"), "shared-memory race"},
          {"barrier attention.out_staged dropped",
           dropBarriers("attention.out_staged"), "shared-memory race"},
          {"attention.wait_q weaker by one", weakenWaits("attention.wait_q"),
           "read of a copy that was not waited for"},
          {"attention.wait_kv weaker by one", weakenWaits("attention.wait_kv"),
           "read of a copy that was not waited for"},
          {"first commit dropped", dropFirstCommit(),
           "read of a copy that was not waited for"},
          {"commit in the loops dropped", dropCommitInLoop("attention.mma_qk"),
           "read of a copy that was not waited for"},
          {"swizzle of load_q dropped", dropSwizzle("attention.load_q"),
           "result"},
          {"swizzle of read_k dropped", dropSwizzle("attention.read_k"),
           "result"},
          {"swizzle of load_v dropped", dropSwizzle("attention.load_v"),
           "result"},
          {"swizzle of read_v dropped", dropSwizzle("attention.read_v"),
           "result"},
          {"swizzle of the output's stage dropped",
           editOperand("attention.stage_out", Role::Address, chunkInPlace),
           "result"},
          {"swizzle of keys dropped on both sides",
           both(dropSwizzle("attention.load_k"),
                dropSwizzle("attention.read_k")),
           "counters"},
          {"multiplies one stage on", startOneStageOn("attention.read_k"),
           "read of a copy that was not waited for"},
          {"stage that is multiplied stays", keepStage("attention.read_v"),
           "write onto bytes that are being copied"},
          {"one block less in every loop", moveLoopEnd("attention.mma_qk", -1),
           "result"},
          {"one block more in every loop", moveLoopEnd("attention.mma_qk", 1),
           "read of unwritten shared memory"},
          {"first block of every loop left out",
           moveLoopBegin("attention.mma_qk", 1), "result"},
          {"causal mask admits the next key", editMask(predicate(sgt, sge)),
           "result"},
          {"copies behind the last key",
           editOperand("attention.load_k", Role::SourceBytes,
                       predicate(slt, sle)),
           "counters"},
          {"values behind the last key not zero-filled",
           copyWholeChunks("attention.load_v"), "result"},
          {"one key more than the sequence has",
           editAll(addToResult("attention.load_kv_lens", 1)), "result"},
          {"keys of the next KV head",
           editOperand("attention.load_k", Role::Source, nextKVHead), "result"},
          {"query of the next KV head",
           editOperand("attention.load_q", Role::Source, nextKVHead), "result"},
          {"rows of a wider group",
           editOperand("attention.load_q", Role::Source, widerGroup(2)),
           "result"},
          {"token stride for head stride",
           editOperand("attention.load_k", Role::Source,
                       replaceWord(kHeadStride, kTokenStride)),
           "result"},
          {"token stride for block stride",
           editOperand("attention.load_v", Role::Source,
                       replaceWord(kBlockStride, kTokenStride)),
           "result"},
          {"keys for values",
           editOperand("attention.load_v", Role::Source,
                       replaceWord(kValues, kKeys)),
           "result"},
          // Behind a sequence's last block the table has page -1: in front of
          // the keys, where the host may have put any other array.
          {"page of the next block",
           moveAddress("attention.load_block_table", Role::Address, 4),
           "global access out of bounds or result"},
          {"read_k transposed", transposeLoads("attention.read_k"), "result"},
          {"read_v not transposed", transposeLoads("attention.read_v"),
           "result"},
          {"words of the query swapped",
           swapWords("attention.mma_qk", 'A', 1, 2), "result"},
          {"words of the values swapped",
           swapWords("attention.mma_pv", 'B', 0, 1), "result"},
          {"row maximum of half the lanes",
           editAll(exchangeWith("attention.row_max", 2, 1)), "result"},
          {"row sum of half the lanes",
           editAll(exchangeWith("attention.row_sum", 2, 1)), "result"},
          {"state not brought to the new maximum", editAll(dropRescale),
           "result"},
          {"one row more stored",
           editOperand("attention.store", Role::Guard,
                       admitOneMore([](LLVM::ICmpOp compare) {
                         return !isa<BlockArgument>(compare.getLhs());
                       })),
           "result"},
      });
}

// A window that begins within blocks.
TEST(AttentionMutation, Window) {
  AttentionProblem p = problemOf(32, "head_major");
  p.window = 40;
  p.dtype = Dtype::F16;
  AttentionSubject subject(p, {{100, 100}, {33, 97, 2}});
  expectCaught(
      subject,
      {
          {"window of one key more", editMask(widerWindow), "result"},
          {"window of one key less", editMask(predicate(sle, slt)), "result"},
          {"first block of every loop left out",
           moveLoopBegin("attention.mma_qk", 1), "result"},
          {"token stride for head stride",
           editOperand("attention.load_v", Role::Source,
                       replaceWord(kHeadStride, kTokenStride)),
           "result"},
      });
}

// The mask is the end of the sequence alone.
TEST(AttentionMutation, Bidirectional) {
  AttentionProblem p = problemOf(24, "contiguous");
  p.causal = false;
  AttentionSubject subject(p, {{50, 50}, {3, 70, 2}});
  expectCaught(
      subject,
      {
          {"key behind the last admitted",
           editMask(addToResult("attention.rows", 1)), "result"},
          {"mask admits the next key", editMask(predicate(sgt, sge)), "result"},
      });
}

// Query fragments do not fit the registers; rows stand before the first key.
TEST(AttentionMutation, QueryInSharedMemory) {
  AttentionProblem p = problemOf(256, "paged_nhd");
  p.kvHeads = 1;
  p.group = 1;
  AttentionSubject subject(p, {{24, 3}, {3, 70, 2}});
  expectCaught(
      subject,
      {
          {"attention.wait_all dropped", dropWaits("attention.wait_all"),
           "copies left open at exit"},
          {"attention.wait_kv weaker by one", weakenWaits("attention.wait_kv"),
           "read of a copy that was not waited for"},
          {"barrier attention.stage_ready dropped",
           dropBarriers("attention.stage_ready"), "shared-memory race"},
          {"swizzle of read_q dropped", dropSwizzle("attention.read_q"),
           "result"},
      });
}

/// The split's number plus one: the workgroup's, or what comes back from the
/// ninth lane of a warp.
Value nextSplit(OpBuilder &b, Operation *op, ValueRange operands) {
  bool isSplit = isa<LLVM::URemOp>(op)
                     ? isConstant(operands[1], kSplits)
                     : isa<NVVM::ShflOp>(op) &&
                           siteOf(op) == "attention.rows" &&
                           isConstant(cast<NVVM::ShflOp>(op).getOffset(), 8);
  if (!isSplit)
    return {};
  Value split = op->getResult(0);
  return LLVM::AddOp::create(b, op->getLoc(), split, constantLike(b, split, 1));
}

/// -inf as 0: the log-sum-exp of one key with score 0.
Value emptyAsZero(OpBuilder &b, Operation *op, ValueRange) {
  auto constant = dyn_cast<LLVM::ConstantOp>(op);
  auto number =
      constant ? dyn_cast<FloatAttr>(constant.getValue()) : FloatAttr();
  if (!number || !number.getValue().isInfinity())
    return {};
  return LLVM::ConstantOp::create(b, op->getLoc(), b.getF32FloatAttr(0.0f));
}

/// Products with ln 2, without it.
Value keepBase2(OpBuilder &, Operation *op, ValueRange operands) {
  if (!isa<LLVM::FMulOp>(op))
    return {};
  FloatAttr factor;
  bool isLn2 = matchPattern(operands[1], m_Constant(&factor)) &&
               std::abs(factor.getValueAsDouble() - 0.6931472) < 1e-6;
  return isLn2 ? operands[0] : Value();
}

// Both splits have keys in one sequence, one in the other; a third sees none.
TEST(AttentionMutation, Splits) {
  AttentionProblem p = problemOf(32, "paged_nhd");
  p.numSplits = kSplits;
  AttentionSubject subject(p, {{3, 500}, {1, 100, 2}, {2, 0, 3}});
  expectCaught(
      subject,
      {
          {"one block less in every loop", moveLoopEnd("attention.mma_qk", -1),
           "result"},
          {"one block more in every loop", moveLoopEnd("attention.mma_qk", 1),
           "read of unwritten shared memory or result"},
          {"first block of every loop left out",
           moveLoopBegin("attention.mma_qk", 1), "result"},
          {"output of the next split",
           editOperand("attention.store", Role::Address, nextSplit),
           "result or global access out of bounds"},
          {"log-sum-exp of the next split",
           editOperand("attention.store_lse", Role::Address, nextSplit),
           "result or global access out of bounds"},
          {"a split without a key counts",
           editOperand("attention.store_lse", Role::Stored, emptyAsZero),
           "result"},
          {"log-sum-exp in base 2",
           editOperand("attention.store_lse", Role::Stored, keepBase2),
           "result"},
          {"columns exchanged with another lane",
           editAll(exchangeWith("attention.exchange", 1, 2)), "result"},
          {"row sum of half the lanes",
           editAll(exchangeWith("attention.row_sum", 2, 1)), "result"},
      });
}

// What docs/emulator.md lists as not caught: lanes of a warp that exchange
// through global memory.
TEST(AttentionMutation, NotCaught) {
  AttentionProblem p = problemOf(24, "contiguous");
  p.form = Form::Plain;
  AttentionSubject subject(p, {{5, 40}});
  expectCaught(subject,
               {
                   {"bar.warp.sync attention.probabilities_stored dropped",
                    dropWarpBarriers("attention.probabilities_stored"), ""},
               });
}

} // namespace
