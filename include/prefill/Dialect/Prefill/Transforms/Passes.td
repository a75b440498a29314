// Graph passes, prefill to prefill. Order and stages are in lib/Pipelines/Pipelines.cpp.
#ifndef PREFILL_TRANSFORMS_PASSES_TD
#define PREFILL_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

//===-- What a module is compiled for, and the plan -------------------------------------------------------------===//

def SpecializeModelPass : Pass<"prefill-specialize-model", "::mlir::ModuleOp"> {
  let summary = "sets the dtype, the KV layout and the maximum length that the module is compiled for";
  let description = [{
    Rewrites the element type of weights and activations (not of the logits, which stay f32) and every kv_cache type, and
    sets the module attribute `prefill.max_seq`.

    ```mlir
    // before: imported as bf16, contiguous
    !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 32, head_dim_v = 32, dtype = bf16, block_size = 4096>
    // after --prefill-specialize-model="dtype=f32 kv-layout=paged_nhd block-size=16"
    !prefill.kv_cache<paged_nhd, num_kv_heads = 2, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 16>
    ```
  }];
  let options = [
    Option<"dtype", "dtype", "std::string", "\"\"", "f32, bf16 or f16; empty keeps the model's">,
    Option<"kvLayout", "kv-layout", "std::string", "\"contiguous\"", "contiguous, head_major or paged_nhd">,
    Option<"blockSize", "block-size", "int64_t", "16", "tokens a block of a paged layout">,
    Option<"maxSeq", "max-seq", "int64_t", "0", "maximum sequence length; 0: the lesser of 4096 and the model's maximum">
  ];
  let statistics = [Statistic<"numCaches", "caches", "KV caches whose type was set">];
}

def OutlineKernelsPass : Pass<"prefill-outline-kernels", "::mlir::ModuleOp"> {
  let summary = "moves every compute op of the entry function into a kernel function; equal kernels are one";
  let description = [{
    ```mlir
    // before
    %0 = prefill.attention %q, %cache, %batch {...}
    // after
    %0 = prefill.launch @attention(%q, %cache, %batch) : ...
    func.func private @attention(%query: ..., %cache: ..., %batch: ...) -> ... attributes {prefill.kernel}
    ```
  }];
  let dependentDialects = ["::mlir::func::FuncDialect"];
  let statistics = [
    Statistic<"numLaunches", "launches", "launches in the plan">,
    Statistic<"numKernels", "kernels", "different kernels">
  ];
}

#endif
