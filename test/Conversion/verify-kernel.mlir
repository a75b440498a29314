// RUN: not prefill-opt %s --prefill-verify-kernel --split-input-file 2>&1 | FileCheck %s

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k has no body
func.func private @k(%begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k has results of type ('index'), expected none: a kernel stores into its arguments
func.func private @k(%begin: index, %end: index, %scratch: memref<1xi8>) -> index attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  return %begin : index
}

// -----

// CHECK: error: kernel k has no prefill.grid, which says how many workgroups run it
func.func private @k(%begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.scratch_bytes = 0 : i64} {
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: has no prefill.scratch_bytes, which says how much scratch a thread needs
func.func private @k(%begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid} {
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: 'func.func' op attribute 'prefill.scratch_bytes' is -64 : i64, expected an i64 of at least 0
func.func private @k(%begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = -64 : i64} {
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// A buffer with its shape is no bare pointer.
// CHECK: error: kernel k: argument 0 has type 'memref<?x64xf32>', expected memref<1xT> or index
func.func private @k(%out: memref<?x64xf32>, %begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: argument 1 has type '!prefill.batch', expected memref<1xT> or index
func.func private @k(%out: memref<1xf32>, %batch: !prefill.batch, %begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: argument 0 has type 'memref<1xf32, 3>', expected memref<1xT> or index
func.func private @k(%out: memref<1xf32, 3>, %begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: the last arguments are ('memref<1xf32>', 'index', 'memref<1xi8>'), expected wg_begin, wg_end and scratch: ('index', 'index', 'memref<1xi8>')
func.func private @k(%out: memref<1xf32>, %begin: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: the last arguments are ('memref<1xi8>'), expected wg_begin, wg_end and scratch: ('index', 'index', 'memref<1xi8>')
func.func private @k(%scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: memref.alloc allocates: a kernel has the scratch argument for that
func.func private @k(%begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  %c1 = arith.constant 1 : index
  scf.for %wg = %begin to %end step %c1 {
    %0 = memref.alloc() : memref<64xf32>
  }
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: memref.alloca allocates: a kernel has the scratch argument for that
func.func private @k(%begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  %0 = memref.alloca() : memref<64xf32>
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: llvm.alloca allocates: a kernel has the scratch argument for that
func.func private @k(%begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  %c = arith.constant 64 : i64
  %0 = llvm.alloca %c x f32 : (i64) -> !llvm.ptr
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// A tiled op that was not emitted.
// CHECK: error: kernel k: prefill.num_sequences is no op of level kernel
func.func private @k(%begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  %batch = ub.poison : !prefill.batch
  %0 = prefill.num_sequences %batch
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// Workgroups are the executor's: a thread runs through its own.
// CHECK: error: kernel k: scf.forall is no op of level kernel
func.func private @k(%begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  scf.forall (%wg) in (%end) {
  }
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: func.call is no op of level kernel
func.func private @helper()
func.func private @k(%begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  call @helper() : () -> ()
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// Of the LLVM dialect only intrinsics.
// CHECK: error: kernel k: llvm.add is no op of level kernel
func.func private @k(%begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  %c = arith.constant 64 : i64
  %0 = llvm.add %c, %c : i64
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: arith.constant makes a tensor of type 'tensor<8xf32>', expected scalars, vectors and memrefs
func.func private @k(%begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 0 : i64} {
  %0 = arith.constant dense<0.0> : tensor<8xf32>
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK-NOT: error
// What a kernel may be; functions that are none are not looked at.
func.func private @plan(%x: tensor<?x8xf32>) -> tensor<?x8xf32>
func.func private @k(%out: memref<1xf32>, %begin: index, %end: index, %scratch: memref<1xi8>) attributes {prefill.kernel, prefill.grid = #grid, prefill.scratch_bytes = 64 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = memref.reinterpret_cast %out to offset: [0], sizes: [%end, 8], strides: [8, 1] : memref<1xf32> to memref<?x8xf32>
  scf.for %wg = %begin to %end step %c1 {
    %0 = vector.load %rows[%wg, %c0] : memref<?x8xf32>, vector<8xf32>
    %1 = llvm.intr.maxnum(%0, %0) : (vector<8xf32>, vector<8xf32>) -> vector<8xf32>
    %2 = math.absf %1 : vector<8xf32>
    vector.store %2, %rows[%wg, %c0] : memref<?x8xf32>, vector<8xf32>
  }
  return
}
