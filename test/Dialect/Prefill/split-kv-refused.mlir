// RUN: prefill-opt %s --prefill-split-kv="target=cuda:sm_80 max-rows=16" --split-input-file --verify-diagnostics

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 8, dtype = bf16, block_size = 512>
func.func @height(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x32xbf16> {
  // expected-error@+1 {{'prefill.attention' op has no splits: attention tile of 512 query rows by 64 keys, 2 query heads a KV head, head_dim 16/8: 1024 rows, expected at most 256}}
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, lowering_config = #prefill.lowering_config<tokens, block_m = 512, block_n = 16, block_kv = 64, panel_n = 1, row_buckets = [1]>} : tensor<?x64xbf16>, !cache -> tensor<?x32xbf16>
  return %o : tensor<?x32xbf16>
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 6, dtype = bf16, block_size = 512>
func.func @values(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x24xbf16> {
  // expected-error@+1 {{'prefill.attention' op has no splits: attention tile of 16 query rows by 64 keys, 2 query heads a KV head, head_dim 16/6: target cuda has kernels for head sizes that are multiples of 8 from 8 to 256}}
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, lowering_config = #prefill.lowering_config<tokens, block_m = 16, block_n = 12, block_kv = 64, panel_n = 1, row_buckets = [1]>} : tensor<?x64xbf16>, !cache -> tensor<?x24xbf16>
  return %o : tensor<?x24xbf16>
}
