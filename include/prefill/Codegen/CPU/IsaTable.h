//===- IsaTable.h - the x86-64 variants that kernels are built for -*- C++ -*-//
// Numbers about hardware live here and in TileTable.h, never in a rewrite.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CPU_ISATABLE_H
#define PREFILL_CODEGEN_CPU_ISATABLE_H

#include "mlir/IR/Types.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace mlir::prefill {

/// Columns of a panel of a packed weight. The same for every variant, so that
/// one packed copy serves all of them.
inline constexpr int64_t kPanelN = 32;

/// How a vector of products reaches the f32 accumulators.
enum class MacKind {
  /// f32 operands, one fused multiply-add.
  F32,
  /// bf16 pairs of columns split in registers (shl 16, and 0xffff0000), two
  /// f32 fused multiply-adds with rows in f32.
  Bf16Split,
  /// vdpbf16ps.
  Bf16Dot,
  /// f16 columns converted in registers, one f32 fused multiply-add.
  F16Convert,
  /// vpdpbusd: four products of a row's unsigned by a column's signed 8-bit
  /// integers, added to an i32.
  Int8Dot,
  /// 8-bit columns widened in registers to pairs of 16 bits, vpmaddwd with rows
  /// of 16 bits: the same i32.
  Int8Split,
};

struct CpuIsa {
  /// Value of the pass option `isa` and name of the variant in a module.
  llvm::StringLiteral name;
  /// -mcpu and -mattr of the code generator.
  llvm::StringLiteral cpu;
  llvm::StringLiteral features;
  /// f32 lanes of a vector register.
  int64_t lanes;
  /// Rows of the largest microkernel.
  int64_t microRows;
  /// Columns of a microkernel: a whole panel or a part of one.
  int64_t microColumns;
  bool hasBf16Dot;
  /// AMX: tdpbf16ps multiplies tiles of 16 rows x 64 bytes, for bf16 alone.
  bool hasTiles;
  /// AVX-VNNI or AVX512-VNNI: vpdpbusd.
  bool hasInt8Dot;
  /// It differs from the variant before it by vpdpbusd alone: only modules with
  /// weights of 8 bits have code for it.
  bool onlyInt8;

  /// `elementType` is f32, bf16, f16 or i8.
  MacKind macKind(Type elementType) const;
  /// Whether a gemm's left operand is converted to f32 before the microkernels
  /// read it, which would all have to do so anew.
  bool convertsLeftOperand(Type elementType) const;
  /// Whether a gemm of many rows copies its weight to f32 as well, once for all
  /// rows of a workgroup: Intel's two pipes for vectors of 512 bits would
  /// spend every ninth slot on splitting columns.
  bool widensWeight(Type elementType) const;
  /// What attention multiplies where its operands are stored in `elementType`.
  Type attentionType(Type elementType) const;
  /// Whether a weight that streams past few rows is asked for ahead of time
  /// however few they are. Emerald Rapids, which runs `avx512`, reads a decode
  /// step's weights at 0.65 of its bandwidth without and 0.89 with it; Zen 4,
  /// which runs `avx512_bf16`, does better alone (kWeightPrefetchCycles).
  bool prefetchesForFewRows() const { return lanes >= 16 && !hasBf16Dot; }
  /// Whether few rows meet several panels at a time, each a stream of its own.
  /// On Zen 3, which runs `avx2`, one core reads 16 GB/s in one stream (13 with
  /// every line asked for ahead), 20 in two and 21 in four; a decode step with
  /// bf16 went from 0.67 to 0.99 of the read bandwidth. Not measured on CPUs
  /// with AVX-512.
  bool readsPanelsSideBySide() const { return lanes < 16; }
  /// Of a gemm's steps that are unrolled, one in so many asks for a line of
  /// what is multiplied next. Measured on Zen 3 (f32, a prototype in C): every
  /// step 0.84 of the peak, every second 0.87, every fourth 0.88, which asks
  /// too seldom where rows are few (every second one skips lines below 12
  /// rows). On AVX-512 one in four was level (Emerald Rapids).
  int64_t prefetchSteps() const { return lanes < 16 ? 2 : 1; }
  /// Vector registers across a microkernel's columns.
  int64_t microVectors() const { return microColumns / lanes; }
};

/// All variants, the most general one first.
llvm::ArrayRef<CpuIsa> cpuIsas();

/// The variant with that name; null when there is none (the valid names are in
/// `cpuIsaNames`).
const CpuIsa *lookupCpuIsa(llvm::StringRef name);
std::string cpuIsaNames();

/// Consecutive k of one column that lie together in a packed weight: the pair
/// that vdpbf16ps multiplies for bf16, the four of vpdpbusd for i8, else 1.
int64_t kPack(Type elementType);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_ISATABLE_H
