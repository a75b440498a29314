// All graph passes together leave exactly five compute ops a layer; any one of them left out leaves valid IR with the same
// final structure elsewhere.
// DEFINE: %{all} = --prefill-fold-scale --prefill-fuse-qkv-projection --prefill-fuse-gate-up --prefill-fold-norm --prefill-fold-kv-append-into-epilogue --prefill-fold-residual-into-epilogue --prefill-fold-activation-into-epilogue --prefill-erase-unused-weights
// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir %{all} | grep '^    %' | FileCheck %s --check-prefix=ALL
// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fold-scale --prefill-fuse-gate-up --prefill-fold-norm --prefill-fold-kv-append-into-epilogue --prefill-fold-residual-into-epilogue --prefill-fold-activation-into-epilogue | grep '^    %' | FileCheck %s --check-prefix=NO-QKV
// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fold-scale --prefill-fuse-qkv-projection --prefill-fold-norm --prefill-fold-kv-append-into-epilogue --prefill-fold-residual-into-epilogue --prefill-fold-activation-into-epilogue | grep '^    %' | FileCheck %s --check-prefix=NO-GATE-UP
// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fold-scale --prefill-fuse-qkv-projection --prefill-fuse-gate-up --prefill-fold-kv-append-into-epilogue --prefill-fold-residual-into-epilogue --prefill-fold-activation-into-epilogue | grep '^    %' | FileCheck %s --check-prefix=NO-NORM
// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fold-scale --prefill-fuse-qkv-projection --prefill-fuse-gate-up --prefill-fold-norm --prefill-fold-kv-append-into-epilogue --prefill-fold-activation-into-epilogue | grep '^    %' | FileCheck %s --check-prefix=NO-RESIDUAL

// Only the ops of the function's body are left by grep: they stand at four spaces.
// ALL: prefill.get_weight @embed
// ALL-NEXT: prefill.rowwise
// ALL-COUNT-4: prefill.get_weight
// ALL-NEXT: prefill.gemm {{.*}}prefill.name = "qkv_proj"
// ALL-NEXT: prefill.attention
// ALL-NEXT: prefill.get_weight
// ALL-NEXT: prefill.gemm {{.*}}prefill.name = "o_proj"
// ALL-NEXT: prefill.get_weight
// ALL-NEXT: prefill.gemm {{.*}}prefill.name = "gate_up_proj"
// ALL-NEXT: prefill.get_weight
// ALL-NEXT: prefill.gemm {{.*}}prefill.name = "down_proj"
// ALL-NEXT: prefill.select_rows
// ALL-NEXT: prefill.get_weight
// ALL-NEXT: prefill.rms_norm
// ALL-NEXT: prefill.lm_head
// ALL-NOT: = prefill.

// NO-QKV: prefill.gemm {{.*}}prefill.name = "q_proj"
// NO-QKV: prefill.gemm {{.*}}prefill.name = "k_proj"
// NO-QKV: prefill.gemm {{.*}}prefill.name = "v_proj"
// NO-QKV: prefill.kv_append
// NO-QKV: prefill.gemm {{.*}}prefill.name = "down_proj"

// NO-GATE-UP: prefill.gemm {{.*}}prefill.name = "gate_proj"
// NO-GATE-UP: prefill.gemm {{.*}}prefill.name = "up_proj"
// NO-GATE-UP: prefill.gated_act
// NO-GATE-UP: prefill.gemm {{.*}}prefill.name = "down_proj"

// NO-NORM: prefill.embed
// NO-NORM: prefill.rms_norm
// NO-NORM: prefill.gemm {{.*}}prefill.name = "qkv_proj"
// NO-NORM: prefill.gemm {{.*}}prefill.name = "o_proj"
// NO-NORM: prefill.rms_norm

// NO-RESIDUAL: prefill.row_sumsq
// NO-RESIDUAL: prefill.linear {{.*}}prefill.name = "o_proj"
// NO-RESIDUAL: prefill.add
// NO-RESIDUAL: prefill.row_sumsq
// NO-RESIDUAL: prefill.gemm {{.*}}prefill.name = "gate_up_proj"
