// RUN: prefill-opt %s --prefill-tile --prefill-convert-to-cuda-kernels=chip=sm_80 --mlir-print-debuginfo --mlir-use-nameloc-as-prefix=false | FileCheck %s
// RUN: not prefill-opt %s --prefill-tile --prefill-convert-to-cuda-kernels=chip=sm_75 2>&1 | FileCheck %s --check-prefix=ERR
// ERR: error: unknown chip 'sm_75'; valid are sm_80, sm_86, sm_89, sm_90

// Shared memory is one window that the launch sizes.
// CHECK: llvm.mlir.global external @prefill_shared() {addr_space = 3 : i32, alignment = 128 : i64} : !llvm.array<0 x i8>

// One i64 for each word: x, w, the batch's 11, the output.
// CHECK-LABEL: llvm.func @o_proj(
// CHECK-COUNT-14: i64
// CHECK-SAME: nvvm.kernel, prefill.block_threads = 128 : i32, prefill.grid = #prefill.grid<tokens, block = 64, plus_sequences = false, multiplier = 2>, prefill.kernel, prefill.shared_bytes = 32768 : i64
// CHECK-NOT: prefill.gemm

// Surplus blocks do nothing.
// CHECK: nvvm.read.ptx.sreg.ctaid.x
// CHECK: arith.cmpi slt
// CHECK: scf.if

// Three stages are under way before the loop begins; rows past the end become zeros.
// CHECK-COUNT-12: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK: scf.for
// CHECK: nvvm.cp.async.wait.group 2
// CHECK: nvvm.barrier0
// CHECK: scf.if
// CHECK: nvvm.cp.async.commit.group
// Two steps of 16 k: a warp of four multiplies 32 x 32 by 2 x 4 products each.
// CHECK-COUNT-4: nvvm.ldmatrix {{.*}}num = 4 : i32
// CHECK-COUNT-8: nvvm.mma.sync
// CHECK-COUNT-4: nvvm.ldmatrix {{.*}}num = 4 : i32
// CHECK-COUNT-8: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync

// The sums meet in shared memory; rows leave 16 bytes at a time.
// CHECK: nvvm.barrier0
// CHECK: llvm.store {{.*}} {alignment = 8 : i64} : vector<2xf32>, !llvm.ptr<3>
// CHECK: nvvm.barrier0
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xf32>
// CHECK: llvm.fptrunc {{.*}} : vector<2xf32> to vector<2xbf16>
// CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
// CHECK: llvm.return
// CHECK-DAG: loc("gemm.load_a"
// CHECK-DAG: loc("gemm.load_b"
// CHECK-DAG: loc("gemm.read_a"
// CHECK-DAG: loc("gemm.mma"
// CHECK-DAG: loc("epilogue.store"
func.func private @o_proj(%x: tensor<?x256xbf16>, %w: tensor<128x256xbf16>, %batch: !prefill.batch) -> tensor<?x128xbf16> attributes {prefill.kernel} {
  %0 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 64, block_kv = 0, panel_n = 1, row_buckets = [1]>} : tensor<?x256xbf16>, tensor<128x256xbf16> -> tensor<?x128xbf16> epilogue {
  ^bb0(%acc: tensor<?x128xf32>):
    prefill.yield %acc : tensor<?x128xf32>
  }
  return %0 : tensor<?x128xbf16>
}
