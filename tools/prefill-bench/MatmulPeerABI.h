/* What prefill-bench-onednn.so exports. */
#ifndef PREFILL_TOOLS_PREFILLBENCH_MATMULPEERABI_H
#define PREFILL_TOOLS_PREFILLBENCH_MATMULPEERABI_H

#include <stddef.h>
#include <stdint.h>

typedef struct prefill_matmul_peer {
  /* dtype: "f32", "bf16", "f16", "int8". A null pointer on failure, with the
   * reason in one line in `error`. At least `copy_bytes` of B are spread over
   * copies. */
  void *(*create)(const char *dtype, int64_t m, int64_t n, int64_t k,
                  int threads, uint64_t copy_bytes, char *error,
                  size_t error_size);
  void (*run)(void *);
  void (*destroy)(void *);
  const char *version;
  /* The best instruction set that matmuls may use: "avx2", "avx_vnni",
   * "avx512", "avx512_vnni", "avx512_bf16". Before the first `create`. 0 on
   * failure. */
  int (*limit_isa)(const char *isa);
  /* "AVX512_CORE_BF16" and so on: what the library may use. */
  const char *(*isa)(void);
} prefill_matmul_peer;

/* extern "C" const prefill_matmul_peer *prefill_matmul_peer_get(void); */
typedef const prefill_matmul_peer *(*prefill_matmul_peer_get_fn)(void);

#endif /* PREFILL_TOOLS_PREFILLBENCH_MATMULPEERABI_H */
