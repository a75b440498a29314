// RUN: prefill-opt %s --prefill-hoist-row-selection | FileCheck %s
// RUN: prefill-opt %s --prefill-hoist-row-selection --prefill-hoist-row-selection | FileCheck %s
// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-hoist-row-selection | FileCheck %s --check-prefix=LAYER
// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-hoist-row-selection --remarks-filter-passed=prefill-rows --remark-policy=all -o %t 2>&1 | FileCheck %s --check-prefix=REMARK
!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = bf16, block_size = 128>

// Keys and values of every row are needed, as is the query of those that are selected.
// LAYER: %[[X0:.*]] = prefill.embed
// LAYER: prefill.linear {{.*}}prefill.name = "q_proj"
// LAYER: prefill.kv_append
// LAYER: %[[R:.*]] = prefill.select_rows %[[X0]], %arg0
// LAYER: %[[A:.*]] = prefill.attention {{.*}}selected_rows
// LAYER: %[[O:.*]] = prefill.linear %[[A]], {{.*}}prefill.name = "o_proj"
// LAYER: prefill.add %[[R]], %[[O]]
// LAYER: %[[X2:.*]] = prefill.add
// LAYER-NOT: select_rows
// LAYER: prefill.rms_norm %[[X2]]
// REMARK: prefill-hoist-row-selection{{.*}}9 ops compute only the rows whose logits are asked for

// A value that two ops read is selected once.
// CHECK-LABEL: func @shared
func.func @shared(%x: tensor<?x64xbf16>, %batch: !prefill.batch) -> tensor<?x64xbf16> {
  // CHECK-NEXT: %[[R:.*]] = prefill.select_rows %arg0, %arg1
  // CHECK-NEXT: %[[S:.*]] = prefill.scale %[[R]]
  // CHECK-NEXT: %[[Y:.*]] = prefill.add %[[S]], %[[R]]
  // CHECK-NEXT: return %[[Y]]
  %s = prefill.scale %x {factor = 2.0} : tensor<?x64xbf16> -> tensor<?x64xbf16>
  %y = prefill.add %s, %x : tensor<?x64xbf16>, tensor<?x64xbf16> -> tensor<?x64xbf16>
  %r = prefill.select_rows %y, %batch : tensor<?x64xbf16> -> tensor<?x64xbf16>
  return %r : tensor<?x64xbf16>
}

// A value whose other rows are read keeps them all: here %s is returned.
// CHECK-LABEL: func @other_reader
func.func @other_reader(%x: tensor<?x64xbf16>, %batch: !prefill.batch) -> (tensor<?x64xbf16>, tensor<?x64xbf16>) {
  // CHECK-NEXT: %[[S:.*]] = prefill.scale %arg0
  // CHECK-NEXT: %[[R:.*]] = prefill.select_rows %[[S]]
  // CHECK-NEXT: %[[Y:.*]] = prefill.scale %[[R]]
  // CHECK-NEXT: return %[[S]], %[[Y]]
  %s = prefill.scale %x {factor = 2.0} : tensor<?x64xbf16> -> tensor<?x64xbf16>
  %y = prefill.scale %s {factor = 3.0} : tensor<?x64xbf16> -> tensor<?x64xbf16>
  %r = prefill.select_rows %y, %batch : tensor<?x64xbf16> -> tensor<?x64xbf16>
  return %s, %r : tensor<?x64xbf16>, tensor<?x64xbf16>
}

// A rope asks for the position of its row: another row's would be wrong.
// CHECK-LABEL: func @rope
func.func @rope(%x: tensor<?x64xbf16>, %batch: !prefill.batch) -> tensor<?x64xbf16> {
  // CHECK-NEXT: prefill.rope %arg0
  // CHECK-NEXT: prefill.select_rows
  %y = prefill.rope %x, %batch {rope = #prefill.rope<theta = 10000.0, rotary_dim = 32>, head_dim = 32} : tensor<?x64xbf16> -> tensor<?x64xbf16>
  %r = prefill.select_rows %y, %batch : tensor<?x64xbf16> -> tensor<?x64xbf16>
  return %r : tensor<?x64xbf16>
}

// Attention over another batch, and one whose whole result is read, stay.
// CHECK-LABEL: func @attention
func.func @attention(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %other: !prefill.batch) -> (tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) {
  // CHECK-NOT: selected_rows
  %a = prefill.attention %q, %cache, %other {scale = 0.125, causal} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
  %r = prefill.select_rows %a, %batch : tensor<?x64xbf16> -> tensor<?x64xbf16>
  %b = prefill.attention %q, %cache, %batch {scale = 0.125, causal} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
  %s = prefill.select_rows %b, %batch : tensor<?x64xbf16> -> tensor<?x64xbf16>
  return %r, %b, %s : tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>
}

// The target without such kernels says so.
// RUN: not prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-hoist-row-selection --prefill-select-lowering-strategy=target=cuda:sm_80 2>&1 | FileCheck %s --check-prefix=CUDA
// CUDA: 'prefill.attention' op has selected_rows; target cuda has no kernel for it (leave out prefill-hoist-row-selection)
