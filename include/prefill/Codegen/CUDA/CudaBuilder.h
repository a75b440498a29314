//===- CudaBuilder.h - what a CUDA thread can do ----------------*- C++ -*-===//
//
// Arithmetic within tiles is on i32 (the inherited add, mul, ... take any
// integer type), offsets into global memory are index or i64. Numbers are
// computed in f32; f16 and bf16 exist in memory and in words of two.
//
// Every access and every NVVM operation is given the name of its site, such as
// "gemm.load_a": emulator counters and reports use it.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_CUDABUILDER_H
#define PREFILL_CODEGEN_CUDA_CUDABUILDER_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "prefill/Codegen/Common/KernelBuilder.h"

namespace mlir::prefill {

/// Bytes of the widest access and copy of a thread, and of a chunk: the unit
/// that tiles of shared memory are made of.
inline constexpr int64_t kChunkBytes = 16;

class CudaBuilder : public KernelBuilder {
public:
  using KernelBuilder::KernelBuilder;

  // Integers.
  Value i32(int64_t value);
  Value toI32(Value integer); // from index, i64: truncated
  Value toI64(Value integer); // from index, i32: sign-extended
  Value bitAnd(Value lhs, int64_t rhs);
  Value bitAnd(Value lhs, Value rhs);
  Value bitXor(Value lhs, Value rhs);
  Value bitXor(Value lhs, int64_t rhs);
  Value shiftLeft(Value lhs, int64_t rhs);
  Value shiftRight(Value lhs, int64_t rhs); // logical
  /// i1 values; a null operand is "true" and null results from two of them.
  Value both(Value lhs, Value rhs);
  Value less(Value lhs, Value rhs);   // signed
  Value less(Value lhs, int64_t rhs); // signed
  Value equal(Value lhs, int64_t rhs);
  Value select(Value condition, Value yes, Value no);

  // Where a thread is: i32.
  Value threadId();
  Value blockId();
  Value lane();
  Value warp(); // threadId / 32

  // f32.
  Value fadd(Value lhs, Value rhs);
  Value fsub(Value lhs, Value rhs);
  Value fmul(Value lhs, Value rhs);
  Value fmul(Value lhs, double rhs);
  Value fma(Value a, Value b, Value c); // a * b + c, rounded once
  Value fmax(Value lhs, Value rhs);
  Value exp2(Value x);       // ex2.approx.ftz
  Value log2(Value x);       // lg2.approx.ftz
  Value reciprocal(Value x); // rcp.approx.ftz
  Value rsqrt(Value x);      // rsqrt.approx.ftz

  // Two numbers of 16 bits in an i32, the first in the lower half.
  Value pack(Value first, Value second, Type element);
  std::pair<Value, Value> unpack(Value word, Type element);
  /// `value` rounded to f16 or bf16 and back; f32 stays.
  Value roundTo(Value value, Type element);

  // Pointers. `bytes` is i32 for shared memory, i32, i64 or index for global.
  Value pointer(Value base, Value bytes);
  Value pointer(Value base, int64_t bytes);
  /// Pointer to element `element` of an array of `type`.
  Value elementPointer(Value base, Value element, Type type);

  // Memory. Alignment 0 is that of the type. Loads of single integers and
  // floats take any address space.
  Value load(Type type, Value pointer, StringRef site, int64_t alignment = 0);
  void store(Value value, Value pointer, StringRef site, int64_t alignment = 0);
  /// 16 bytes at a multiple of 16, as four i32.
  SmallVector<Value> loadChunk(Value pointer, StringRef site);
  void storeChunk(ValueRange words, Value pointer, StringRef site);
  /// Four f32 in 16 bytes.
  SmallVector<Value> loadFloats(Value pointer, StringRef site);
  void storeFloats(ValueRange values, Value pointer, StringRef site);

  // Synchronisation.
  void barrier(StringRef site);
  void syncWarp(StringRef site);

  // Collectives of all 32 lanes; `value` is i32 or f32.
  Value shuffleIndex(Value value, Value lane, StringRef site);
  Value shuffleXor(Value value, int64_t laneMask, StringRef site);

  // Asynchronous copies of 16 bytes, global to shared, past the first-level
  // cache (cp.async.cg). `bytes` (i32, null: 16) come from `source`, the rest
  // becomes zeros; with 0 the source is not read.
  void copyAsync(Value shared, Value global, Value bytes, StringRef site);
  void commitGroup();
  /// Waits until at most `open` of this thread's groups are under way.
  void waitGroup(int64_t open, StringRef site);

  // Matrices: Fragments.h says which lane holds what.
  /// `count` (1, 2, 4) 8x8 matrices of 16-bit numbers, a word each; lane i
  /// gives the address of row i % 8 of matrix i / 8.
  SmallVector<Value> loadMatrix(Value shared, int64_t count, bool transposed,
                                StringRef site);
  /// m16n8k16 of f16 or bf16 with f32 sums: A four words, B two, sums four.
  SmallVector<Value> mma(Type element, ValueRange a, ValueRange b,
                         ValueRange sums, StringRef site);

  /// Zeros, as many as wanted.
  SmallVector<Value> zeros(int64_t count);

private:
  Location site(StringRef name);
};

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CUDA_CUDABUILDER_H
