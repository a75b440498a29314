// A stock mlir-opt runs the passes from the plugin, and does what prefill-opt does.
// DEFINE: %{passes} = prefill-fold-scale,prefill-fuse-qkv-projection,prefill-fuse-gate-up,prefill-fold-norm,prefill-fold-kv-append-into-epilogue
// RUN: mlir-opt --load-dialect-plugin=%plugin --load-pass-plugin=%plugin --pass-pipeline='builtin.module(%{passes})' \
// RUN:   %S/../Dialect/Prefill/Inputs/decoder-bf16.mlir -o %t.plugin
// RUN: prefill-opt --pass-pipeline='builtin.module(%{passes})' %S/../Dialect/Prefill/Inputs/decoder-bf16.mlir -o %t.own
// RUN: diff %t.plugin %t.own
// RUN: FileCheck %s <%t.plugin

// Q, K and V are one GEMM with RoPE and the cache write in its epilogue.
// CHECK: prefill.gemm {{.*}}prefill.name = "qkv_proj"
// CHECK: prefill.rope
// CHECK: prefill.kv_append
// CHECK: prefill.yield {{.*}}!kv_cache

// Options of a pass arrive, and its errors are reported as in prefill-opt.
// RUN: not mlir-opt --load-dialect-plugin=%plugin --load-pass-plugin=%plugin \
// RUN:   --pass-pipeline='builtin.module(prefill-fuse-gate-up{granularity=0})' %S/../Dialect/Prefill/Inputs/decoder-bf16.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ZERO
// ZERO: error: prefill-fuse-gate-up: granularity is 0, expected a positive number of columns
