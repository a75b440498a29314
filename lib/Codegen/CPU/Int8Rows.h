//===- Int8Rows.h - rows of 8-bit integers for a microkernel ----*- C++ -*-===//
//
// vpdpbusd takes one side unsigned: in variants that have it quantize_rows
// stores rows with 128 added, which makes the sums of a column too large by 128
// times the sum of its weights, its bias. vpmaddwd takes 16 bits: rows are
// copied as such, the even k of each four before the odd ones, as the columns
// are widened (MacKind::Int8Split).
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_LIB_CODEGEN_CPU_INT8ROWS_H
#define PREFILL_LIB_CODEGEN_CPU_INT8ROWS_H

#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/Common/KernelBuilder.h"

namespace mlir::prefill {

/// Of quantize_rows (docs/spec.md): the integer that a row's largest magnitude
/// becomes, and the magnitude below which the row is zeros.
inline constexpr double kQuantizedSteps = 127;
inline constexpr double kQuantizedMinimum = 0x1p-100;

/// What quantize_rows adds to each integer: 128 for vpdpbusd, else 0.
int64_t int8RowBias(const CpuIsa &isa);

/// Of a copy of a row: i8 for vpdpbusd, which may read rows in place as well,
/// i16 for vpmaddwd, which may not.
Type stagedInt8Type(MLIRContext *context, const CpuIsa &isa);

/// Copies `length` integers from element `from` of the flat i8 `source` to
/// element `to` of `target`. What follows up to the next multiple of four k
/// meets the zeros of the packed weight and may hold anything.
void stageInt8Row(KernelBuilder &b, const CpuIsa &isa, Value source, Value from,
                  Value target, Value to, Value length);

/// Fills a copy of `length` k, which is a row of zeros: its sums are the bias.
void stageInt8Zeros(KernelBuilder &b, Value target, Value to, int64_t length);

/// Adds a part of a panel, `steps` groups of four k from element `start` of the
/// flat packed `weight` on, to the bias of its columns, i32 [kPanelN] from
/// element `column` of `bias` on; `isFirst` (i1): nothing is there yet.
/// `chains`: parts of the sum that are carried apart, a divisor of `steps`.
void emitInt8Bias(KernelBuilder &b, const CpuIsa &isa, Value weight,
                  Value start, Value steps, int64_t chains, Value bias,
                  Value column, Value isFirst);

/// acc + four products in each of its lanes: `row` unsigned, `column` signed,
/// vector<lanes x i32> of four bytes each.
Value emitInt8Dot(KernelBuilder &b, Value acc, Value row, Value column);

/// acc + two products in each of its lanes, vector<lanes x i32> of two i16.
Value emitInt16Dot(KernelBuilder &b, Value acc, Value row, Value column);

} // namespace mlir::prefill

#endif // PREFILL_LIB_CODEGEN_CPU_INT8ROWS_H
