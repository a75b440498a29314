//===- LaunchAttributes.h - what a launch must know of a kernel -*- C++ -*-===//
#ifndef PREFILL_CODEGEN_CUDA_LAUNCHATTRIBUTES_H
#define PREFILL_CODEGEN_CUDA_LAUNCHATTRIBUTES_H

#include "llvm/ADT/StringRef.h"

namespace mlir::prefill {

/// i32 on a kernel: threads of a block.
inline constexpr llvm::StringLiteral kBlockThreadsAttr =
    "prefill.block_threads";
/// i64 on a kernel: bytes of the window of shared memory.
inline constexpr llvm::StringLiteral kSharedBytesAttr = "prefill.shared_bytes";
/// The window: an array of no elements in address space 3.
inline constexpr llvm::StringLiteral kSharedWindowSymbol = "prefill_shared";

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CUDA_LAUNCHATTRIBUTES_H
