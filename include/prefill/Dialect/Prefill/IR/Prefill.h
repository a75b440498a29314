//===- Prefill.h - the prefill dialect --------------------------*- C++ -*-===//
// Dialect, types, attributes and ops. docs/spec.md is the specification.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_DIALECT_PREFILL_IR_PREFILL_H
#define PREFILL_DIALECT_PREFILL_IR_PREFILL_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "prefill/Dialect/Prefill/IR/PrefillDialect.h.inc"
#include "prefill/Dialect/Prefill/IR/PrefillEnums.h.inc"

#define GET_TYPEDEF_CLASSES
#include "prefill/Dialect/Prefill/IR/PrefillTypes.h.inc"

#define GET_ATTRDEF_CLASSES
#include "prefill/Dialect/Prefill/IR/PrefillAttrs.h.inc"

namespace mlir::prefill {
/// Names an op's results in printed IR: after the weight's symbol, a compute
/// op's `prefill.name` ("q_proj"), else the op itself ("rms_norm"); a cache is
/// "cache". Nothing reads the names back.
void nameResults(Operation *op, OpAsmSetValueNameFn setName);
} // namespace mlir::prefill

#define GET_OP_CLASSES
#include "prefill/Dialect/Prefill/IR/PrefillOps.h.inc"

namespace mlir::prefill {
/// Discardable attribute (i64) on ops of a decoder layer.
inline constexpr llvm::StringLiteral kLayerAttr = "prefill.layer";
/// Discardable string on a compute op: what a launch of it is called in plans
/// and profiles, such as "qkv_proj".
inline constexpr llvm::StringLiteral kNameAttr = "prefill.name";
/// Discardable array on a compute op before outlining: a #prefill.buffer for
/// each result, unit for a cache.
inline constexpr llvm::StringLiteral kBuffersAttr = "prefill.buffers";
/// Unit attribute on a func.func that is a kernel.
inline constexpr llvm::StringLiteral kKernelAttr = "prefill.kernel";
/// #prefill.grid on a kernel function.
inline constexpr llvm::StringLiteral kGridAttr = "prefill.grid";
/// Unit attribute of a module whose activations of a multiple of 4 KiB a row
/// lie a line apart: prefill-plan-memory plans them so and kernels for a CPU
/// read them so.
inline constexpr llvm::StringLiteral kPadRowsAttr = "prefill.pad_rows";
/// i64 on a kernel function: scratch bytes for each thread.
inline constexpr llvm::StringLiteral kScratchBytesAttr =
    "prefill.scratch_bytes";
/// Most k of a gemm of 8-bit integers (GEMM-C6): their sums fit i32, also where
/// one side is read without its sign, 65536 * 255 * 127.
inline constexpr int64_t kMaxInt8K = 65536;
/// Name of the entry function of a model.
inline constexpr llvm::StringLiteral kEntryName = "prefill";
/// Unit argument attribute of a kernel: the score matrix of unfused attention,
/// f32 [num_q_heads, M_pad, max_kv].
inline constexpr llvm::StringLiteral kScoreAttr = "prefill.score";
/// Copies `prefill.layer` from one op to another.
inline void copyLayer(Operation *from, Operation *to) {
  if (Attribute layer = from->getAttr(kLayerAttr))
    to->setAttr(kLayerAttr, layer);
}
} // namespace mlir::prefill

#endif // PREFILL_DIALECT_PREFILL_IR_PREFILL_H
