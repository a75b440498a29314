//===- Mutations.cpp - faults put into a kernel's NVVM form ---------------===//
#include "Mutations.h"
#include "mlir/Analysis/CFGLoopInfo.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace prefill_test {

std::string siteOf(Operation *op) {
  auto name = dyn_cast<NameLoc>(op->getLoc());
  return name ? name.getName().str() : "";
}

bool isConstant(Value value, int64_t number) {
  APInt constant;
  return matchPattern(value, m_ConstantInt(&constant)) &&
         constant.getSExtValue() == number;
}

Value constantLike(OpBuilder &b, Value value, int64_t number) {
  return LLVM::ConstantOp::create(b, value.getLoc(), value.getType(),
                                  b.getIntegerAttr(value.getType(), number));
}

static Value addNumber(OpBuilder &b, Value value, int64_t number) {
  return LLVM::AddOp::create(b, value.getLoc(), value,
                             constantLike(b, value, number));
}

template <typename OpTy>
static SmallVector<OpTy> operationsAt(ModuleOp module, StringRef site) {
  SmallVector<OpTy> found;
  module.walk([&](OpTy op) {
    if (siteOf(op) == site)
      found.push_back(op);
  });
  return found;
}

static SmallVector<Operation *> accessesAt(ModuleOp module, StringRef site) {
  SmallVector<Operation *> found;
  module.walk([&](Operation *op) {
    if (siteOf(op) == site &&
        isa<NVVM::CpAsyncOp, NVVM::LdMatrixOp, LLVM::LoadOp, LLVM::StoreOp>(op))
      found.push_back(op);
  });
  return found;
}

Mutation both(Mutation first, Mutation second) {
  return [=](ModuleOp module) -> size_t {
    size_t one = first(module), two = second(module);
    return one && two ? one + two : 0;
  };
}

//===----------------------------------------------------------------------===//
// Synchronisation
//===----------------------------------------------------------------------===//

template <typename OpTy> static Mutation drop(std::string site) {
  return [=](ModuleOp module) {
    auto found = operationsAt<OpTy>(module, site);
    for (OpTy op : found)
      op.erase();
    return found.size();
  };
}

Mutation dropBarriers(std::string site) { return drop<NVVM::Barrier0Op>(site); }
Mutation dropWarpBarriers(std::string site) {
  return drop<NVVM::SyncWarpOp>(site);
}
Mutation dropWaits(std::string site) {
  return drop<NVVM::CpAsyncWaitGroupOp>(site);
}

Mutation weakenWaits(std::string site) {
  return [=](ModuleOp module) {
    auto found = operationsAt<NVVM::CpAsyncWaitGroupOp>(module, site);
    for (NVVM::CpAsyncWaitGroupOp op : found)
      op.setN(op.getN() + 1);
    return found.size();
  };
}

Mutation dropFirstCommit() {
  return [](ModuleOp module) {
    NVVM::CpAsyncCommitGroupOp first;
    module.walk([&](NVVM::CpAsyncCommitGroupOp op) {
      if (!first)
        first = op;
    });
    if (!first)
      return 0;
    first.erase();
    return 1;
  };
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

namespace {

/// The innermost loop around an operation: a header that compares and
/// branches.
struct Loop {
  Block *header = nullptr;
  SmallVector<Block *> outside, latches; // predecessors of the header
  SmallVector<Block *> blocks;
};

class Loops {
public:
  explicit Loops(ModuleOp module) {
    for (auto kernel : module.getOps<LLVM::LLVMFuncOp>()) {
      dominance.getDomTree(&kernel.getBody()); // computes it
      infos.push_back(std::make_unique<CFGLoopInfo>(
          dominance.getDomTree(&kernel.getBody())));
    }
  }
  std::optional<Loop> around(Operation *op) const {
    for (const auto &info : infos)
      if (CFGLoop *found = info->getLoopFor(op->getBlock())) {
        Loop loop;
        loop.header = found->getHeader();
        loop.blocks.assign(found->block_begin(), found->block_end());
        for (Block *block : loop.header->getPredecessors())
          (found->contains(block) ? loop.latches : loop.outside)
              .push_back(block);
        return loop;
      }
    return std::nullopt;
  }
  /// Of all operations at `site`, each once.
  SmallVector<Loop> around(ModuleOp module, StringRef site) const {
    SmallVector<Loop> found;
    module.walk([&](Operation *op) {
      if (siteOf(op) != site)
        return;
      auto loop = around(op);
      if (loop && llvm::none_of(found, [&](const Loop &other) {
            return other.header == loop->header;
          }))
        found.push_back(*loop);
    });
    return found;
  }

private:
  DominanceInfo dominance;
  std::vector<std::unique_ptr<CFGLoopInfo>> infos;
};

} // namespace

static OpOperand *branchOperand(Block *from, Block *to, unsigned argument) {
  auto branch = cast<BranchOpInterface>(from->getTerminator());
  for (unsigned i = 0; i < from->getNumSuccessors(); ++i)
    if (from->getSuccessor(i) == to) {
      SuccessorOperands operands = branch.getSuccessorOperands(i);
      MutableOperandRange range = operands.getMutableForwardedOperands();
      return &range[argument];
    }
  return nullptr;
}

/// The comparison that ends the loop, and which of the header's arguments it
/// compares.
static std::optional<std::pair<LLVM::ICmpOp, unsigned>>
boundOf(const Loop &loop) {
  auto branch = dyn_cast<LLVM::CondBrOp>(loop.header->getTerminator());
  if (!branch)
    return std::nullopt;
  auto compare = branch.getCondition().getDefiningOp<LLVM::ICmpOp>();
  if (!compare || compare.getPredicate() != LLVM::ICmpPredicate::slt)
    return std::nullopt;
  auto argument = dyn_cast<BlockArgument>(compare.getLhs());
  if (!argument || argument.getOwner() != loop.header)
    return std::nullopt;
  return std::pair(compare, argument.getArgNumber());
}

Mutation moveLoopEnd(std::string site, int64_t delta) {
  return [=](ModuleOp module) {
    size_t count = 0;
    for (const Loop &loop : Loops(module).around(module, site))
      if (auto bound = boundOf(loop)) {
        OpBuilder b(bound->first);
        bound->first.getRhsMutable().assign(
            addNumber(b, bound->first.getRhs(), delta));
        ++count;
      }
    return count;
  };
}

Mutation moveLoopBegin(std::string site, int64_t delta) {
  return [=](ModuleOp module) {
    size_t count = 0;
    for (const Loop &loop : Loops(module).around(module, site))
      if (auto bound = boundOf(loop))
        for (Block *block : loop.outside) {
          OpBuilder b(block->getTerminator());
          OpOperand *begin = branchOperand(block, loop.header, bound->second);
          begin->set(addNumber(b, begin->get(), delta));
          ++count;
        }
    return count;
  };
}

Mutation dropCommitInLoop(std::string site) {
  return [=](ModuleOp module) {
    size_t count = 0;
    for (const Loop &loop : Loops(module).around(module, site))
      for (Block *block : loop.blocks)
        for (auto op : llvm::make_early_inc_range(
                 block->getOps<NVVM::CpAsyncCommitGroupOp>())) {
          op.erase();
          ++count;
        }
    return count;
  };
}

static OpOperand *operandOf(Operation *op, Role role) {
  if (auto copy = dyn_cast<NVVM::CpAsyncOp>(op)) {
    if (role == Role::Address)
      return &copy.getDstMutable();
    if (role == Role::Source)
      return &copy.getSrcMutable();
    if (role == Role::SourceBytes && copy.getCpSize())
      return &copy.getCpSizeMutable()[0];
    return nullptr;
  }
  if (auto matrix = dyn_cast<NVVM::LdMatrixOp>(op))
    return role == Role::Address ? &matrix.getPtrMutable() : nullptr;
  if (auto load = dyn_cast<LLVM::LoadOp>(op))
    return role == Role::Address ? &load.getAddrMutable() : nullptr;
  if (auto store = dyn_cast<LLVM::StoreOp>(op))
    return role == Role::Address  ? &store.getAddrMutable()
           : role == Role::Stored ? &store.getValueMutable()
                                  : nullptr;
  return nullptr;
}

/// Arguments of the loop's header that a value is computed from.
static void collectCarried(Value value, const Loop &loop,
                           llvm::SetVector<BlockArgument> &carried,
                           DenseSet<Value> &seen) {
  if (!seen.insert(value).second)
    return;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (argument.getOwner() == loop.header)
      carried.insert(argument);
    return;
  }
  for (Value operand : value.getDefiningOp()->getOperands())
    collectCarried(operand, loop, carried, seen);
}

/// Where a stage's offset is carried by the loops around `site`, and what is
/// added to it for the next.
static size_t forEachStage(
    ModuleOp module, StringRef site,
    llvm::function_ref<size_t(const Loop &, BlockArgument, int64_t)> change) {
  size_t count = 0;
  Loops loops(module);
  DenseSet<BlockArgument> done;
  for (Operation *op : accessesAt(module, site)) {
    auto loop = loops.around(op);
    if (!loop)
      continue;
    llvm::SetVector<BlockArgument> carried;
    DenseSet<Value> seen;
    collectCarried(operandOf(op, Role::Address)->get(), *loop, carried, seen);
    for (BlockArgument argument : carried) {
      APInt bytes;
      for (Operation *user : argument.getUsers()) {
        auto add = dyn_cast<LLVM::AddOp>(user);
        if (add && llvm::is_contained(loop->blocks, user->getBlock()) &&
            matchPattern(add.getRhs(), m_ConstantInt(&bytes)) && bytes.sgt(1) &&
            done.insert(argument).second)
          count += change(*loop, argument, bytes.getSExtValue());
      }
    }
  }
  return count;
}

Mutation startOneStageOn(std::string site) {
  return [=](ModuleOp module) {
    return forEachStage(
        module, site, [](const Loop &loop, BlockArgument stage, int64_t bytes) {
          size_t count = 0;
          for (Block *block : loop.outside) {
            OpOperand *first =
                branchOperand(block, loop.header, stage.getArgNumber());
            // A ring that runs on from another loop has begun there.
            if (!matchPattern(first->get(), m_Constant()))
              continue;
            OpBuilder b(block->getTerminator());
            first->set(addNumber(b, first->get(), bytes));
            ++count;
          }
          return count;
        });
  };
}

Mutation keepStage(std::string site) {
  return [=](ModuleOp module) {
    return forEachStage(
        module, site, [](const Loop &loop, BlockArgument stage, int64_t) {
          for (Block *block : loop.latches)
            branchOperand(block, loop.header, stage.getArgNumber())->set(stage);
          return loop.latches.size();
        });
  };
}

//===----------------------------------------------------------------------===//
// What an operation computes with
//===----------------------------------------------------------------------===//

namespace {

/// Computes a value anew at the builder's place, with edits.
class SliceEditor {
public:
  SliceEditor(OpBuilder b, const Edit &edit) : b(b), edit(edit) {}

  Value rewrite(Value value) {
    auto found = rewritten.find(value);
    if (found != rewritten.end())
      return found->second;
    Value result = compute(value);
    rewritten[value] = result;
    return result;
  }
  size_t count = 0;

private:
  Value compute(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return value;
    bool isPure = isMemoryEffectFree(op) && op->getNumRegions() == 0;
    SmallVector<Value> operands(op->getOperands());
    if (isPure)
      for (Value &operand : operands)
        operand = rewrite(operand);
    if (Value other = edit(b, op, operands)) {
      ++count;
      return other;
    }
    if (!isPure || llvm::equal(operands, op->getOperands()))
      return value;
    Operation *copy = b.clone(*op);
    copy->setOperands(operands);
    return copy->getResult(cast<OpResult>(value).getResultNumber());
  }

  OpBuilder b;
  const Edit &edit;
  DenseMap<Value, Value> rewritten;
};

} // namespace

static size_t editValue(OpOperand &operand, const Edit &edit) {
  SliceEditor editor(OpBuilder(operand.getOwner()), edit);
  operand.set(editor.rewrite(operand.get()));
  return editor.count;
}

Mutation editOperand(std::string site, Role role, Edit edit) {
  return [=](ModuleOp module) {
    size_t count = 0;
    llvm::SetVector<OpOperand *> operands;
    for (Operation *op : accessesAt(module, site)) {
      if (role != Role::Guard) {
        if (OpOperand *operand = operandOf(op, role))
          operands.insert(operand);
        continue;
      }
      Block *block = op->getBlock();
      while (Block *from = block->getSinglePredecessor()) {
        if (auto branch = dyn_cast<LLVM::CondBrOp>(from->getTerminator()))
          operands.insert(&branch.getConditionMutable());
        block = from;
      }
    }
    for (OpOperand *operand : operands)
      count += editValue(*operand, edit);
    return count;
  };
}

Mutation editMask(Edit edit) {
  return [=](ModuleOp module) {
    size_t count = 0;
    module.walk([&](LLVM::SelectOp op) {
      APFloat constant(0.0);
      if (matchPattern(op.getFalseValue(), m_ConstantFloat(&constant)) &&
          constant.isNegInfinity())
        count += editValue(op.getConditionMutable(), edit);
    });
    return count;
  };
}

Mutation editAll(Edit edit) {
  return [=](ModuleOp module) {
    size_t count = 0;
    SmallVector<Operation *> all;
    module.walk([&](Operation *op) {
      if (op->getNumResults() == 1)
        all.push_back(op);
    });
    for (Operation *op : all) {
      OpBuilder b(op);
      b.setInsertionPointAfter(op);
      Value other = edit(b, op, op->getOperands());
      if (!other)
        continue;
      op->getResult(0).replaceAllUsesExcept(other, other.getDefiningOp());
      ++count;
    }
    return count;
  };
}

static Value pointerPlus(OpBuilder &b, Value pointer, Value bytes) {
  return LLVM::GEPOp::create(b, pointer.getLoc(), pointer.getType(),
                             b.getI8Type(), pointer,
                             ArrayRef<LLVM::GEPArg>{bytes});
}

Mutation moveAddress(std::string site, Role role, int64_t bytes) {
  return [=](ModuleOp module) {
    size_t count = 0;
    for (Operation *op : accessesAt(module, site))
      if (OpOperand *operand = operandOf(op, role)) {
        OpBuilder b(op);
        Value offset =
            LLVM::ConstantOp::create(b, op->getLoc(), b.getI32Type(),
                                     b.getI32IntegerAttr(int32_t(bytes)));
        operand->set(pointerPlus(b, operand->get(), offset));
        ++count;
      }
    return count;
  };
}

Mutation flipOffset(std::string site, Role role, int64_t bits) {
  return [=](ModuleOp module) {
    size_t count = 0;
    for (Operation *op : accessesAt(module, site)) {
      OpOperand *operand = operandOf(op, role);
      auto gep =
          operand ? operand->get().getDefiningOp<LLVM::GEPOp>() : LLVM::GEPOp();
      if (!gep || gep->getNumOperands() != 2)
        continue;
      OpBuilder b(op);
      Value offset = gep->getOperand(1);
      Value flipped = LLVM::XOrOp::create(b, op->getLoc(), offset,
                                          constantLike(b, offset, bits));
      operand->set(pointerPlus(b, gep->getOperand(0), flipped));
      ++count;
    }
    return count;
  };
}

Mutation narrowOffset(std::string site, Role role) {
  return editOperand(
      site, role,
      [](OpBuilder &b, Operation *op, ValueRange operands) -> Value {
        auto gep = dyn_cast<LLVM::GEPOp>(op);
        if (!gep || operands.size() != 2 ||
            !operands[1].getType().isInteger(64))
          return {};
        Location loc = op->getLoc();
        Value narrow =
            LLVM::TruncOp::create(b, loc, b.getI32Type(), operands[1]);
        Value wide = LLVM::SExtOp::create(b, loc, b.getI64Type(), narrow);
        Operation *copy = b.clone(*op);
        copy->setOperands({operands[0], wide});
        return copy->getResult(0);
      });
}

Mutation copyWholeChunks(std::string site) {
  return [=](ModuleOp module) {
    size_t count = 0;
    for (Operation *op : accessesAt(module, site))
      if (OpOperand *bytes = operandOf(op, Role::SourceBytes)) {
        OpBuilder b(op);
        bytes->set(constantLike(b, bytes->get(),
                                int64_t(cast<NVVM::CpAsyncOp>(op).getSize())));
        ++count;
      }
    return count;
  };
}

Mutation dropSwizzle(std::string site) {
  return editOperand(
      site, Role::Address, [](OpBuilder &, Operation *op, ValueRange operands) {
        // By a constant: steps along K.
        bool permutes = isa<LLVM::XOrOp>(op) &&
                        !matchPattern(op->getOperand(1), m_Constant());
        return permutes ? operands[0] : Value();
      });
}

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

Mutation transposeLoads(std::string site) {
  return [=](ModuleOp module) {
    auto found = operationsAt<NVVM::LdMatrixOp>(module, site);
    for (NVVM::LdMatrixOp op : found)
      op.setLayout(op.getLayout() == NVVM::MMALayout::row
                       ? NVVM::MMALayout::col
                       : NVVM::MMALayout::row);
    return found.size();
  };
}

Mutation swapWords(std::string site, char operand, int64_t first,
                   int64_t second) {
  return [=](ModuleOp module) {
    auto found = operationsAt<NVVM::MmaOp>(module, site);
    for (NVVM::MmaOp op : found) {
      MutableOperandRange words =
          operand == 'A' ? op.getOperandAMutable() : op.getOperandBMutable();
      Value one = words[first].get();
      words[first].set(words[second].get());
      words[second].set(one);
    }
    return found.size();
  };
}

//===----------------------------------------------------------------------===//
// Edits
//===----------------------------------------------------------------------===//

Edit predicate(LLVM::ICmpPredicate from, LLVM::ICmpPredicate to) {
  return [=](OpBuilder &b, Operation *op, ValueRange operands) -> Value {
    auto compare = dyn_cast<LLVM::ICmpOp>(op);
    if (!compare || compare.getPredicate() != from)
      return {};
    return LLVM::ICmpOp::create(b, op->getLoc(), to, operands[0], operands[1]);
  };
}

Edit admitOneMore(std::function<bool(LLVM::ICmpOp)> matches) {
  return [=](OpBuilder &b, Operation *op, ValueRange operands) -> Value {
    auto compare = dyn_cast<LLVM::ICmpOp>(op);
    if (!compare || compare.getPredicate() != LLVM::ICmpPredicate::slt ||
        !matches(compare))
      return {};
    return LLVM::ICmpOp::create(b, op->getLoc(), LLVM::ICmpPredicate::sle,
                                operands[0], operands[1]);
  };
}
Edit exchangeWith(std::string site, int64_t from, int64_t to) {
  return [=](OpBuilder &b, Operation *op, ValueRange) -> Value {
    auto shuffle = dyn_cast<NVVM::ShflOp>(op);
    if (!shuffle || siteOf(op) != site ||
        !isConstant(shuffle.getOffset(), from))
      return {};
    auto copy = cast<NVVM::ShflOp>(b.clone(*op));
    b.setInsertionPoint(copy);
    copy.getOffsetMutable().assign(constantLike(b, shuffle.getOffset(), to));
    return copy.getResult();
  };
}

Edit moveShuffle(std::string site, int64_t delta) {
  return [=](OpBuilder &b, Operation *op, ValueRange) -> Value {
    if (!isa<NVVM::ShflOp>(op) || siteOf(op) != site)
      return {};
    b.setInsertionPoint(op);
    auto shuffle = cast<NVVM::ShflOp>(b.clone(*op));
    b.setInsertionPoint(shuffle);
    Value lane = shuffle.getOffset();
    shuffle.getOffsetMutable().assign(LLVM::AddOp::create(
        b, op->getLoc(), lane, constantLike(b, lane, delta)));
    return shuffle.getResult();
  };
}

Edit addToResult(std::string site, int64_t delta) {
  return [=](OpBuilder &b, Operation *op, ValueRange) -> Value {
    if (!isa<LLVM::LoadOp, NVVM::ShflOp>(op) || siteOf(op) != site)
      return {};
    return addNumber(b, op->getResult(0), delta);
  };
}

Edit replaceWord(unsigned index, unsigned other) {
  return [=](OpBuilder &b, Operation *op, ValueRange operands) -> Value {
    auto kernel = op->getParentOfType<LLVM::LLVMFuncOp>();
    Value word = kernel.getArgument(index);
    if (!llvm::is_contained(operands, word))
      return {};
    Operation *copy = b.clone(*op);
    for (auto [i, operand] : llvm::enumerate(operands))
      copy->setOperand(i,
                       operand == word ? kernel.getArgument(other) : operand);
    return copy->getResult(0);
  };
}

} // namespace prefill_test
