// Passes from the prefill dialect to others: loops over tiles, then kernels of a target.
#ifndef PREFILL_CONVERSION_PASSES_TD
#define PREFILL_CONVERSION_PASSES_TD

include "mlir/Pass/PassBase.td"

def TilePass : Pass<"prefill-tile", "::mlir::ModuleOp"> {
  let summary = "gives every kernel its loop over workgroups and its compute op the form of one tile";
  let description = [{
    A kernel's tensor results become trailing memref arguments.

    ```mlir
    // before
    func.func private @o_proj(%x: tensor<?x64xbf16>, %w: tensor<2x32x32x2xbf16>, %batch: !prefill.batch) -> tensor<?x64xbf16>
        attributes {prefill.kernel} {
      %0 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 64, ...>} ...
      return %0 : tensor<?x64xbf16>
    }
    // after
    func.func private @o_proj(%x: tensor<?x64xbf16>, %w: tensor<2x32x32x2xbf16>, %batch: !prefill.batch, %out: memref<?x64xbf16>)
        attributes {prefill.kernel, prefill.grid = #prefill.grid<tokens, block = 64, plus_sequences = false, multiplier = 1>} {
      scf.forall (%wg) in (%workgroups) {
        prefill.gemm %x, %w tile(%i, %j) outs(%out : memref<?x64xbf16>) ...
      }
      return
    }
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect", "::mlir::memref::MemRefDialect"
  ];
  let options = [Option<"plain", "plain", "bool", "false",
    "one workgroup that runs through all tiles of a gemm or rowwise: the baseline without parallel tiles">];
  let statistics = [Statistic<"numKernels", "kernels", "kernels that were tiled">];
}

def ConvertToCPUKernelsPass : Pass<"prefill-convert-to-cpu-kernels", "::mlir::ModuleOp"> {
  let summary = "emits every tiled kernel for one x86-64 variant: flattened arguments, vectors of its width";
  let description = [{
    The order of the flattened arguments is in Codegen/CPU/KernelABI.h. Where rows of activations lie, the module's
    `prefill.pad_rows` says, which prefill-plan-memory sets.

    ```mlir
    // before
    func.func private @o_proj(%x: tensor<?x64xf32>, ..., %out: memref<?x64xf32>) { scf.forall ... prefill.gemm ... tile(%i, %j) }
    // after --prefill-convert-to-cpu-kernels=isa=avx2
    func.func private @o_proj(%x: memref<1xf32>, ..., %wg_begin: index, %wg_end: index, %scratch: memref<1xi8>)
        attributes {prefill.scratch_bytes = 24576 : i64} { scf.for ... vector.fma ... }
    ```
  }];
  let options = [Option<"isa", "isa", "std::string", "\"avx2\"", "avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16 or amx_bf16">];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect", "::mlir::memref::MemRefDialect", "::mlir::vector::VectorDialect",
    "::mlir::math::MathDialect", "::mlir::x86vector::X86VectorDialect", "::mlir::LLVM::LLVMDialect"
  ];
  let statistics = [
    Statistic<"numKernels", "kernels", "kernels that were emitted">,
    Statistic<"scratchBytes", "scratch-bytes", "bytes of scratch over all kernels">
  ];
}

def ConvertToCUDAKernelsPass : Pass<"prefill-convert-to-cuda-kernels", "::mlir::ModuleOp"> {
  let summary = "emits every tiled kernel for one CUDA chip: one block a workgroup, one i64 for each word of the launch";
  let description = [{
    The order of the words is in docs/architecture.md, "Kernel ABI". Bodies mix arith, scf, llvm and nvvm;
    Target/CUDA/KernelToNVVM makes LLVM and NVVM of them.

    ```mlir
    // before
    func.func private @o_proj(%x: tensor<?x64xf16>, ..., %out: memref<?x64xf16>) { scf.forall ... prefill.gemm ... tile(%i, %j) }
    // after --prefill-convert-to-cuda-kernels=chip=sm_80
    llvm.func @o_proj(%x: i64, ..., %out: i64)
        attributes {nvvm.kernel, prefill.block_threads = 128 : i32, prefill.shared_bytes = 98304 : i64} { ... nvvm.mma.sync ... }
    ```
  }];
  let options = [Option<"chip", "chip", "std::string", "\"sm_80\"", "sm_80, sm_86, sm_89 or sm_90">];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect", "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"
  ];
  let statistics = [
    Statistic<"numKernels", "kernels", "kernels that were emitted">,
    Statistic<"sharedBytes", "shared-bytes", "bytes of shared memory of a block, over all kernels">
  ];
}

//===-- Contracts of levels --------------------------------------------------------------------------------------===//

def VerifyTiledPass : Pass<"prefill-verify-tiled", "::mlir::ModuleOp"> {
  let summary = "check the contract of level tiled";
  let description = [{
    The entry function is a plan: get_weight and launches, whose tensor results are the buffers that their kernels end with.
    A kernel has no results, prefill.grid and one scf.forall over workgroups, in which one op stores what it computes; gemm,
    rowwise and attention stand in tile form only. KV loops follow one another without a gap and hand on the state; blocks of
    a loop marked "full" are not masked, those of a loop marked "edge" are. A loop without a mark runs over all blocks.

    ```mlir
    scf.for %block = ... { prefill.online_attention ... mask = edge } {prefill.kv_blocks = "full"}   // error: masks edge
    ```
  }];
  let statistics = [
    Statistic<"numKernels", "num-kernels", "Number of kernels checked">,
    Statistic<"numKVLoops", "num-kv-loops", "Number of loops over KV blocks checked">
  ];
}

def VerifyKernelPass : Pass<"prefill-verify-kernel", "::mlir::ModuleOp"> {
  let summary = "check the contract of level kernel";
  let description = [{
    A kernel takes pointers (memref<1xT>) and sizes (index), the last three wg_begin, wg_end and scratch, as
    Codegen/CPU/KernelABI.h says; it has prefill.grid and prefill.scratch_bytes. Its ops are sequential loops, arithmetic,
    vectors and accesses to memory: no op of the prefill dialect, no tensor, no call, no allocation.

    ```mlir
    %0 = memref.alloc() : memref<64xf32>   // error: allocates
    ```
  }];
  let statistics = [
    Statistic<"numKernels", "num-kernels", "Number of kernels checked">,
    Statistic<"numOps", "num-ops", "Number of ops checked">
  ];
}

#endif
