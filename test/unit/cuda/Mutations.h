//===- Mutations.h - faults put into a kernel's NVVM form -------*- C++ -*-===//
//
// A mutation finds its places by the kind of operation and the name of the
// site (the operation's NameLoc), and changes what one such operation computes
// with, not what others share with it. It returns how many places it changed;
// none is a failure of the test that asked for it.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TEST_UNIT_CUDA_MUTATIONS_H
#define PREFILL_TEST_UNIT_CUDA_MUTATIONS_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include <functional>
#include <string>

namespace prefill_test {

using Mutation = std::function<size_t(mlir::ModuleOp)>;
/// Several at once; each of them must find its place.
Mutation both(Mutation first, Mutation second);

// ---- Synchronisation

Mutation dropBarriers(std::string site);
/// bar.warp.sync.
Mutation dropWarpBarriers(std::string site);
/// Of the loop around `site`, or of what comes before the loop: its first one.
Mutation dropCommitInLoop(std::string site);
Mutation dropFirstCommit();
Mutation weakenWaits(std::string site);
Mutation dropWaits(std::string site);

// ---- Loops

/// The bound of the innermost loop around each operation at `site`, or the
/// number that the first iteration has.
Mutation moveLoopEnd(std::string site, int64_t delta);
Mutation moveLoopBegin(std::string site, int64_t delta);
/// The stage of a ring that operations at `site` use first: one on.
Mutation startOneStageOn(std::string site);
/// The stage stays what it is.
Mutation keepStage(std::string site);

// ---- What an operation computes with

enum class Role {
  Address,     // of shared memory, or of the only memory that it touches
  Source,      // of an asynchronous copy
  SourceBytes, // of an asynchronous copy: the rest of it becomes zeros
  Stored,
  Guard // the conditions of the branches that lead to it alone
};

/// Another value for the result of `op`, whose operands, perhaps edited
/// already, are `operands`; null: none.
using Edit = std::function<mlir::Value(mlir::OpBuilder &, mlir::Operation *op,
                                       mlir::ValueRange operands)>;

/// Edits what `role` of the operations at `site` is computed from, for them
/// alone: back to loads, collectives and arguments of blocks, which an edit may
/// replace as well.
Mutation editOperand(std::string site, Role role, Edit edit);
/// Edits the conditions under which attention's scores stay what they are:
/// those of selects that else give -inf.
Mutation editMask(Edit edit);
/// Edits operations of the whole kernel.
Mutation editAll(Edit edit);

/// Bytes added to the address of global or shared memory.
Mutation moveAddress(std::string site, Role role, int64_t bytes);
/// The neighbour's: bits of the last offset flipped.
Mutation flipOffset(std::string site, Role role, int64_t bits);
/// An address of global memory from 32 bits of its offset.
Mutation narrowOffset(std::string site, Role role);
Mutation copyWholeChunks(std::string site);
/// The permutation of chunks left out.
Mutation dropSwizzle(std::string site);

// ---- Matrices

Mutation transposeLoads(std::string site);
/// Words `first` and `second` of the operand A or B of mma.sync.
Mutation swapWords(std::string site, char operand, int64_t first,
                   int64_t second);

// ---- Edits

/// Comparisons `from` that become `to`.
Edit predicate(mlir::LLVM::ICmpPredicate from, mlir::LLVM::ICmpPredicate to);
/// `<` of which `matches` holds becomes `<=`.
Edit admitOneMore(std::function<bool(mlir::LLVM::ICmpOp)> matches);
/// Shuffles at `site` with the lane at XOR `from` that go to XOR `to`.
Edit exchangeWith(std::string site, int64_t from, int64_t to);
/// `delta` added to the lane that shuffles at `site` read.
Edit moveShuffle(std::string site, int64_t delta);
/// `delta` added to what is loaded or exchanged at `site`.
Edit addToResult(std::string site, int64_t delta);
/// The launch's word `index` replaced by another one.
Edit replaceWord(unsigned index, unsigned other);

/// The name of an operation's site, "" where it has none.
std::string siteOf(mlir::Operation *op);
bool isConstant(mlir::Value value, int64_t number);
mlir::Value constantLike(mlir::OpBuilder &b, mlir::Value value, int64_t number);

} // namespace prefill_test

#endif // PREFILL_TEST_UNIT_CUDA_MUTATIONS_H
