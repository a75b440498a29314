//===- KernelFrame.h - what a CUDA kernel is called with --------*- C++ -*-===//
//
// Level `kernel` of target cuda: a tiled kernel becomes
//
//   llvm.func @name(i64, ...) attributes {nvvm.kernel, prefill.kernel,
//     prefill.grid, prefill.block_threads : i32,
//     prefill.shared_bytes : i64}
//
// with one i64 for each word of the launch, in the order of
// docs/architecture.md, "Kernel ABI": what the CPU's kernels find behind
// `args`. One block is one workgroup; a block past the last workgroup does
// nothing. Shared memory is one window, @prefill_shared, that the launch sizes.
//
// What may be assumed of the words: buffers, weights and caches begin at
// multiples of 16 bytes, strides of caches are multiples of 8 elements.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_KERNELFRAME_H
#define PREFILL_CODEGEN_CUDA_KERNELFRAME_H

#include "mlir/IR/IRMapping.h"
#include "prefill/Codegen/CUDA/SharedMemory.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {

/// A buffer or weight. Pointers are in address space 1.
struct CudaTensor {
  Value pointer;
  Type elementType;
  int64_t rank = 0;
  int64_t columns = 1; // of a row; all elements of a vector
  Value rows;          // index; null where the type says how many

  /// Pointer to element (row, column), both index or i32; of a vector the row
  /// is not looked at.
  Value at(CudaBuilder &b, Value row, Value column) const;
};

/// The batch's integers. Sizes are index, arrays pointers (KernelABI.h of the
/// CPU has the same fields).
struct CudaBatch {
  Value rows, numSeqs, logitRows; // M_pad, S, R_pad
  Value tokens, positions;        // i32 [M_pad]
  Value slotMapping;              // i64 [M_pad], -1: do not write
  Value cuSeqlens;                // i32 [S + 1]
  Value kvLens;                   // i32 [S]
  Value blockTable;               // i32 [S, blockTableStride]
  Value blockTableStride;
  Value logitsIndices; // i32 [R_pad]

  /// Element `index` (index or i32) of one of the arrays, as index.
  static Value loadI32(CudaBuilder &b, Value array, Value index,
                       StringRef site);
  static Value loadI64(CudaBuilder &b, Value array, Value index,
                       StringRef site);
};

/// K and V of one layer; strides in elements, index.
struct CudaCache {
  KVCacheType type;
  Value key, value;
  Value blockStride, tokenStride, headStride;

  // Element offsets of head 0, index.
  /// Of a slot (block * block_size + offset, index).
  Value slotOffset(CudaBuilder &b, Value slot) const;
  /// Of token `token` of sequence `seq`, through the block table.
  Value tokenOffset(CudaBuilder &b, const CudaBatch &batch, Value seq,
                    Value token) const;
  /// `offset` advanced to KV head `head`.
  Value headOffset(CudaBuilder &b, Value offset, Value head) const;
};

/// The score matrix of unfused attention: f32 [num_q_heads, M_pad, max_kv].
struct CudaScores {
  Value pointer;
  Value maxKv; // index
};

class KernelFrame {
public:
  /// Creates the function behind `tiled`, under a temporary name. Fails with a
  /// diagnostic on an argument that has no form here (among them caches of
  /// layout paged_vnni).
  static FailureOr<KernelFrame> create(func::FuncOp tiled);

  LLVM::LLVMFuncOp getFunction() const { return function; }
  /// A builder in front of the kernel's `return`.
  CudaBuilder bodyBuilder() const;
  /// One right behind the arguments: what is built there dominates everything.
  CudaBuilder entryBuilder() const;

  // What an argument of the tiled function became.
  const CudaTensor &tensor(Value argument) const;
  CudaCache cache(Value argument) const { return caches.lookup(argument); }
  CudaScores scores(Value argument) const { return scoreOf.lookup(argument); }
  bool hasBatch() const { return bool(batchView.rows); }
  const CudaBatch &batch() const { return batchView; }

  /// Regions of the window; what is allocated is what the launch asks for.
  SharedAllocator shared;
  /// Pointer (address space 3) to byte `offset` of the window.
  Value sharedPointer(CudaBuilder &b, int64_t offset) const;

  /// Threads of a block, a multiple of 32; to be set before `finish`.
  int64_t blockThreads = 0;

  /// Gives the kernel the tiled function's name and place, sets its attributes
  /// and erases the tiled function.
  void finish(func::FuncOp tiled);
  /// Erases what `create` made, after an error.
  void abandon() { function.erase(); }

private:
  LLVM::LLVMFuncOp function;
  Operation *lastOfEntry = nullptr;
  CudaBatch batchView;
  DenseMap<Value, CudaTensor> tensors;
  DenseMap<Value, CudaCache> caches;
  DenseMap<Value, CudaScores> scoreOf;
};

/// cloneTiledBody into the kernel of `frame`: scf.forall becomes the block's
/// workgroup, if there is one.
LogicalResult convertTiledBody(
    func::FuncOp tiled, KernelFrame &frame,
    llvm::function_ref<LogicalResult(Operation *, CudaBuilder &, IRMapping &)>
        emitOp);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CUDA_KERNELFRAME_H
