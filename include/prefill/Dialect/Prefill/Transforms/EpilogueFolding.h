//===- EpilogueFolding.h - moving ops into a region of a GEMM ---*- C++ -*-===//
// What the folding passes share: making a linear a gemm, moving a consumer into
// its producer's region, and saying why something stayed outside.
//
// All functions work on one block (the entry function's): a value dominates an
// op when it is a block argument or is defined before it.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_DIALECT_PREFILL_TRANSFORMS_EPILOGUEFOLDING_H
#define PREFILL_DIALECT_PREFILL_TRANSFORMS_EPILOGUEFOLDING_H

#include "mlir/IR/Builders.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include <optional>
#include <string>

namespace mlir::prefill {

/// Discardable string on an op that a folding pass left alone: the reason.
/// `prefill-opt --explain` lists them.
inline constexpr llvm::StringLiteral kNotFoldedAttr = "prefill.not_folded";

/// Discardable array on the module: flags of the folding passes that ran. What
/// one of them folds may then stand alone only with a reason
/// (prefill-verify-fused); a pass that was left out owes none.
inline constexpr llvm::StringLiteral kGraphPassesAttr = "prefill.graph_passes";

/// Adds `passFlag` to the module's `prefill.graph_passes`.
void recordGraphPass(ModuleOp module, StringRef passFlag);

/// Whether the module's `prefill.graph_passes` holds `passFlag`.
bool hasRunGraphPass(ModuleOp module, StringRef passFlag);

/// Sets `prefill.not_folded` on `op` and sends a missed remark named `passFlag`
/// to MLIR's remark engine (silent unless one is set up).
void noteNotFolded(Operation *op, StringRef passFlag, const Twine &reason);

/// `type` with f32 elements: how values look inside an epilogue.
RankedTensorType withF32Elements(RankedTensorType type);

/// The number of columns of a rank-2 tensor value.
int64_t numColumns(Value value);

/// Fills the new region of a compute op: gets the accumulator (null for a
/// rowwise) and returns what is yielded.
using EpilogueBuilder =
    llvm::function_ref<SmallVector<Value>(OpBuilder &, Value accumulator)>;

/// A gemm before the builder's insertion point. N is the weight's row count.
GemmOp createGemm(OpBuilder &builder, Location loc, Value input, Value weight,
                  TypeRange resultTypes, EpilogueBuilder epilogue);

/// Replaces a linear by a gemm with the same result; a bias becomes a bias_add
/// on the accumulator. Name and layer are kept.
GemmOp convertToGemm(LinearOp linear);

/// The op of `block` that produces `value` if it is a gemm or linear, a linear
/// being converted; null otherwise.
GemmOp getOrCreateProducerGemm(Value value);

/// Why `consumer` cannot move into the region of `producer` (gemm or rowwise),
/// whose results it uses; nullopt if it can. The producer's results that it
/// uses must have no other user, except that a row_sumsq may share its operand.
/// Its other operands must be defined before the producer, or be get_weight
/// ops, or the producer must have no user before the consumer.
std::optional<std::string> whyNotAbsorbable(Operation *producer,
                                            Operation *consumer);

/// Moves `consumer` into the region of `producer` (whyNotAbsorbable must have
/// returned nullopt): its results stand in place of the producer's results that
/// only it used. Inside, results are f32, except that an add and what follows
/// from it keep their type, which rounds the stored residual stream there.
/// Returns the op that replaces the producer, which is erased.
Operation *absorb(Operation *producer, Operation *consumer);

/// Erases the get_weight ops of the function that nothing uses.
void eraseDeadGetWeights(func::FuncOp function);

} // namespace mlir::prefill

#endif // PREFILL_DIALECT_PREFILL_TRANSFORMS_EPILOGUEFOLDING_H
