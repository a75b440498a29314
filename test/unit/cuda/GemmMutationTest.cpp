//===- GemmMutationTest.cpp - gemms and rowwise kernels, broken -----------===//
#include "CombineSplitsProblem.h"
#include "EmbeddingProblem.h"
#include "MutationTrial.h"
#include "QKVProblem.h"
#include "ResidualProblem.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Matchers.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace prefill_test;

namespace {

/// Problem: text() and check(CudaKernel &, seed).
template <typename Problem> class KernelSubject : public Subject {
public:
  explicit KernelSubject(Problem problem, KernelOptions options = {})
      : problem(std::move(problem)), options(std::move(options)) {}

  bool compile(const std::function<bool(ModuleOp)> &edit) override {
    options.edit = edit;
    kernel = std::make_unique<CudaKernel>(problem.text(), options);
    return kernel->ok();
  }
  void check(uint64_t seed) override { problem.check(*kernel, seed); }
  std::optional<Report> report() const override { return kernel->report; }
  LaunchCounters counters() const override { return kernel->counters; }

private:
  Problem problem;
  KernelOptions options;
  std::unique_ptr<CudaKernel> kernel;
};

/// The number of the block, sign-extended or not.
bool isBlockId(Value value) {
  if (auto extended = value.getDefiningOp<LLVM::SExtOp>())
    value = extended.getArg();
  return value.getDefiningOp<NVVM::BlockIdXOp>() != nullptr;
}

Edit admitOneWorkgroupMore() {
  return admitOneMore(
      [](LLVM::ICmpOp compare) { return isBlockId(compare.getLhs()); });
}
Edit admitOneRowMore() {
  return admitOneMore([](LLVM::ICmpOp compare) {
    return compare.getLhs().getType().isInteger(64) &&
           !isBlockId(compare.getLhs());
  });
}
Edit admitOneMoreBelow(int64_t limit) {
  return admitOneMore([=](LLVM::ICmpOp compare) {
    return isConstant(compare.getRhs(), limit);
  });
}

/// The element before it was rounded to bf16 and widened again; null: it was
/// not.
Value unrounded(Value value) {
  auto number = value.getDefiningOp<LLVM::BitcastOp>();
  Operation *part = number ? number.getArg().getDefiningOp() : nullptr;
  if (!isa_and_nonnull<LLVM::ShlOp, LLVM::AndOp>(part))
    return {};
  auto word = part->getOperand(0).getDefiningOp<LLVM::BitcastOp>();
  auto narrow =
      word ? word.getArg().getDefiningOp<LLVM::FPTruncOp>() : LLVM::FPTruncOp();
  if (!narrow)
    return {};
  int64_t index = isa<LLVM::ShlOp>(part) ? 0 : 1;
  Value wide = narrow.getArg();
  while (auto insert = wide.getDefiningOp<LLVM::InsertElementOp>()) {
    if (isConstant(insert.getPosition(), index))
      return insert.getValue();
    wide = insert.getVector();
  }
  return {};
}

/// x * x and fma(x, x, sum) of what x was before its rounding.
Value squareUnrounded(OpBuilder &b, Operation *op, ValueRange operands) {
  if (!isa<LLVM::FMulOp, LLVM::FMAOp>(op) || operands[0] != operands[1])
    return {};
  Value x = unrounded(operands[0]);
  if (!x)
    return {};
  if (isa<LLVM::FMulOp>(op))
    return LLVM::FMulOp::create(b, op->getLoc(), x, x);
  return LLVM::FMAOp::create(b, op->getLoc(), x, x, operands[2]);
}

// Rows and columns that end within a tile, K within a stage. The ring of four
// stages turns twice, and the last step's stage lies where the epilogue's tile
// will: otherwise nothing would depend on the barrier between them.
TEST(GemmMutation, Residual) {
  KernelSubject<ResidualProblem> subject(
      {Element::BF16, 96, 64, 64, /*k=*/264, /*rows=*/75});
  expectCaught(
      subject,
      {
          {"barrier gemm.arrived dropped", dropBarriers("gemm.arrived"),
           "shared-memory race or read of unwritten shared memory"},
          {"barrier epilogue.stage_free dropped",
           dropBarriers("epilogue.stage_free"), "shared-memory race"},
          {"barrier epilogue.staged dropped", dropBarriers("epilogue.staged"),
           "shared-memory race"},
          {"gemm.wait weaker by one", weakenWaits("gemm.wait"),
           "read of a copy that was not waited for"},
          {"gemm.wait dropped", dropWaits("gemm.wait"),
           "read of a copy that was not waited for"},
          {"first commit dropped", dropFirstCommit(),
           "read of a copy that was not waited for"},
          {"commit in the loop dropped", dropCommitInLoop("gemm.mma"),
           "read of a copy that was not waited for"},
          {"swizzle of load_a dropped", dropSwizzle("gemm.load_a"), "result"},
          {"swizzle of load_b dropped", dropSwizzle("gemm.load_b"), "result"},
          {"swizzle of read_a dropped", dropSwizzle("gemm.read_a"), "result"},
          {"swizzle of read_b dropped", dropSwizzle("gemm.read_b"), "result"},
          {"swizzle dropped on both sides",
           both(dropSwizzle("gemm.load_a"), dropSwizzle("gemm.read_a")),
           "counters"},
          {"multiplies one stage on", startOneStageOn("gemm.read_a"),
           "read of a copy that was not waited for"},
          {"fills one stage on", startOneStageOn("gemm.load_a"),
           "shared access out of bounds"},
          {"stage that is multiplied stays", keepStage("gemm.read_a"),
           "read of a copy that was not waited for"},
          {"one step of K less", moveLoopEnd("gemm.mma", -1),
           "write onto bytes that are being copied"},
          {"one step of K more", moveLoopEnd("gemm.mma", 1), "result"},
          {"first step of K left out", moveLoopBegin("gemm.mma", 1), "result"},
          {"rows behind the last copied", copyWholeChunks("gemm.load_a"),
           "global access out of bounds"},
          {"columns behind the last copied", copyWholeChunks("gemm.load_b"),
           "global access out of bounds"},
          {"one chunk behind K",
           both(editOperand("gemm.load_a", Role::SourceBytes,
                            admitOneMoreBelow(264)),
                editOperand("gemm.load_b", Role::SourceBytes,
                            admitOneMoreBelow(264))),
           "global access out of bounds"},
          {"one row more stored",
           editOperand("epilogue.store", Role::Guard, admitOneRowMore()),
           "result"},
          {"one chunk more stored",
           editOperand("epilogue.store", Role::Guard, admitOneMoreBelow(96)),
           "result"},
          {"one workgroup more",
           editOperand("gemm.load_a", Role::Guard, admitOneWorkgroupMore()),
           "global race between blocks"},
          {"sums of the row below",
           moveAddress("epilogue.stage_load", Role::Address, 288), "result"},
          {"residual of the chunk beside it",
           flipOffset("epilogue.load", Role::Address, 16), "result"},
          {"row sums of unrounded values", editAll(squareUnrounded), "result"},
          {"row sum over the wrong lanes",
           editAll(exchangeWith("epilogue.sum", 2, 1)), "result"},
          {"row sum of the next tile",
           moveAddress("epilogue.store_sumsq", Role::Address, 4),
           "global access out of bounds"},
          {"read_a transposed", transposeLoads("gemm.read_a"), "result"},
          {"read_b transposed", transposeLoads("gemm.read_b"), "result"},
          {"words of A swapped", swapWords("gemm.mma", 'A', 1, 2), "result"},
          {"words of B swapped", swapWords("gemm.mma", 'B', 0, 1), "result"},
          {"source not at 16 bytes",
           moveAddress("gemm.load_a", Role::Source, 2), "misaligned access"},
          {"source one chunk on", moveAddress("gemm.load_b", Role::Source, 16),
           "global access out of bounds"},
          {"row of ldmatrix not at 16 bytes",
           moveAddress("gemm.read_a", Role::Address, 8), "misaligned access"},
          {"stage outside of the window",
           moveAddress("gemm.load_b", Role::Address, 32768),
           "shared access out of bounds"},
          {"stored to the residual",
           editOperand("epilogue.store", Role::Address, replaceWord(14, 2)),
           "store to read-only memory"},
      });
}

// One block over all tiles: what the unfused form is compared with.
TEST(GemmMutation, OneBlock) {
  KernelOptions options;
  options.tiling = "prefill-tile{plain=true}";
  KernelSubject<ResidualProblem> subject(
      {Element::F16, 64, 16, 32, /*k=*/64, /*rows=*/37}, options);
  expectCaught(subject,
               {
                   {"barrier gemm.next_tile dropped",
                    dropBarriers("gemm.next_tile"), "shared-memory race"},
               });
}

/// Seeds one by one.
struct QKVWithSeed : QKVProblem {
  using QKVProblem::QKVProblem;
  void check(CudaKernel &kernel, uint64_t seed) const {
    QKVProblem::check(kernel, {seed});
  }
};

/// Rope's sine, which one half of a pair takes with the other sign.
Value dropSign(OpBuilder &, Operation *op, ValueRange operands) {
  if (!isa<LLVM::FNegOp>(op))
    return {};
  Operation *angle = operands[0].getDefiningOp();
  if (isa_and_nonnull<LLVM::ExtractElementOp>(angle))
    angle = angle->getOperand(0).getDefiningOp();
  return angle && siteOf(angle) == "epilogue.load_angle" ? operands[0]
                                                         : Value();
}

Value admitSlotMinusOne(OpBuilder &b, Operation *op, ValueRange operands) {
  auto compare = dyn_cast<LLVM::ICmpOp>(op);
  if (!compare || compare.getPredicate() != LLVM::ICmpPredicate::sge ||
      !operands[0].getDefiningOp() ||
      siteOf(operands[0].getDefiningOp()) != "epilogue.load_slot")
    return {};
  return LLVM::ICmpOp::create(b, op->getLoc(), LLVM::ICmpPredicate::sge,
                              operands[0], constantLike(b, operands[0], -1));
}

/// Multiplications by the constant `factor` left out.
Edit dropFactor(double factor) {
  return [=](OpBuilder &, Operation *op, ValueRange operands) -> Value {
    APFloat constant(0.0);
    if (!isa<LLVM::FMulOp>(op) ||
        !matchPattern(operands[1], m_ConstantFloat(&constant)))
      return {};
    return constant.convertToFloat() == float(factor) ? operands[0] : Value();
  };
}

// Words: x, w, sumsq, bias, two gains, table, keys, values, strides of block,
// token and head.
constexpr unsigned kKeys = 7, kValues = 8, kTokenStride = 10, kHeadStride = 11;

TEST(GemmMutation, QKV) {
  QKVCase c{"mutated", 4, 2, 64, 64, 128, {64}, true, true, true, "head_major"};
  KernelSubject<QKVWithSeed> subject(QKVWithSeed(c, Element::BF16));
  expectCaught(
      subject,
      {
          {"row scale of the row beside it",
           flipOffset("epilogue.load_row_scale", Role::Address, 4), "result"},
          {"row scale from the next partial",
           moveAddress("epilogue.load_sumsq", Role::Address, 4),
           "global access out of bounds"},
          {"all barriers before the row scales dropped",
           both(dropBarriers("gemm.arrived"),
                both(dropBarriers("epilogue.stage_free"),
                     dropBarriers("epilogue.staged"))),
           "shared-memory race or read of unwritten shared memory"},
          {"slot -1 written",
           both(
               editOperand("kv_append.store_k", Role::Guard, admitSlotMinusOne),
               editOperand("kv_append.store_v", Role::Guard,
                           admitSlotMinusOne)),
           "global access out of bounds"},
          {"slot of the row below",
           moveAddress("epilogue.load_slot", Role::Address, 8),
           "global access out of bounds"},
          {"values stored over the keys",
           editOperand("kv_append.store_v", Role::Address,
                       replaceWord(kValues, kKeys)),
           "global race between blocks"},
          {"token stride for head stride",
           editOperand("kv_append.store_k", Role::Address,
                       replaceWord(kHeadStride, kTokenStride)),
           "result"},
          {"sign of rope lost", editAll(dropSign), "result"},
          {"position of the row below",
           moveAddress("epilogue.load_position", Role::Address, 4),
           "global access out of bounds"},
          {"angles of the chunk beside it",
           flipOffset("epilogue.load_angle", Role::Address, 32), "result"},
          {"rope's partner one lane on",
           editAll(moveShuffle("epilogue.rope_partner", 1)), "result"},
          {"QK-norm over the wrong lanes",
           editAll(exchangeWith("epilogue.sum", 2, 1)), "result"},
          {"query not scaled", editAll(dropFactor(0.3)), "result"},
          {"one row more stored",
           editOperand("epilogue.store", Role::Guard, admitOneRowMore()),
           "result"},
      });
}

TEST(GemmMutation, Embedding) {
  KernelSubject<EmbeddingProblem> subject({Element::BF16, 320, 128});
  expectCaught(
      subject,
      {
          {"token of the row below",
           moveAddress("epilogue.load_token", Role::Address, 4),
           "global access out of bounds"},
          {"row sums over the wrong lanes",
           editAll(exchangeWith("epilogue.sum", 2, 1)), "result"},
          {"one chunk more stored",
           editOperand("epilogue.store", Role::Guard, admitOneMoreBelow(320)),
           "result"},
          {"one row more", moveLoopEnd("epilogue.load_token", 1),
           "global race between blocks"},
          {"first row left out", moveLoopBegin("epilogue.load_token", 4),
           "result"},
      });
}

/// What keeps NaN of splits without a key out of the sum: selects of 0.
Value takeAnyway(OpBuilder &, Operation *op, ValueRange operands) {
  if (!isa<LLVM::SelectOp>(op))
    return {};
  FloatAttr zero;
  bool drops =
      matchPattern(operands[1], m_Constant(&zero)) && zero.getValue().isZero();
  return drops ? operands[2] : Value();
}

/// Products with log2(e), without it: weights of another base.
Value dropLog2E(OpBuilder &, Operation *op, ValueRange operands) {
  if (!isa<LLVM::FMulOp>(op))
    return {};
  FloatAttr factor;
  bool isLog2E = matchPattern(operands[1], m_Constant(&factor)) &&
                 std::abs(factor.getValueAsDouble() - 1.4426950) < 1e-6;
  return isLog2E ? operands[0] : Value();
}

TEST(GemmMutation, CombineSplits) {
  KernelSubject<CombineSplitsProblem> subject(
      CombineSplitsProblem{Element::BF16, 3, 4, 128});
  expectCaught(
      subject,
      {
          {"outputs of the next split",
           moveAddress("epilogue.load", Role::Address, 4 * 128 * 4),
           "result or global access out of bounds"},
          {"log-sum-exp of the next head",
           moveAddress("combine.load_lse", Role::Address, 4),
           "result or global access out of bounds"},
          {"log-sum-exp of the split before",
           moveAddress("combine.load_lse", Role::Address, -16),
           "result or global access out of bounds"},
          {"outputs of splits without a key count", editAll(takeAnyway),
           "result"},
          {"weights to base 2", editAll(dropLog2E), "result"},
          {"one tile less of a row", moveLoopEnd("combine.load_lse", -1),
           "result"},
          {"one tile more of a row", moveLoopEnd("combine.load_lse", 1),
           "result or global access out of bounds or global race "
           "between blocks"},
      });
}

} // namespace
