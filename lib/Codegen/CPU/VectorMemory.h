//===- VectorMemory.h - vectors of columns from and to memory ---*- C++ -*-===//
#ifndef PREFILL_CODEGEN_CPU_VECTORMEMORY_H
#define PREFILL_CODEGEN_CPU_VECTORMEMORY_H

#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/Common/KernelBuilder.h"

namespace mlir::prefill {

/// `lanes` elements of f32, bf16 or f16 from `indices` on, as f32. With a mask,
/// memory of masked lanes isn't touched and they read as 0.
Value loadColumns(KernelBuilder &b, Value memref, ValueRange indices,
                  int64_t lanes, Value mask = {});

/// Stores f32 lanes, rounded to nearest even to the memref's element type.
void storeColumns(KernelBuilder &b, const CpuIsa &isa, Value vector,
                  Value memref, ValueRange indices, Value mask = {});

/// Stores the lowest bytes of i32 lanes to a memref of i8.
void storeInt8Columns(KernelBuilder &b, const CpuIsa &isa, Value words,
                      Value memref, ValueRange indices, Value mask = {});

/// Stores the elements of a vector of 16-bit floats that the mask takes, and
/// leaves the memory between them alone.
void storeMaskedHalves(KernelBuilder &b, Value vector, Value memref,
                       ValueRange indices, Value mask);

/// Sum of all lanes, in an order that depends on the lane count alone.
Value sumLanes(KernelBuilder &b, Value vector);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_VECTORMEMORY_H
