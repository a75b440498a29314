/* The C ABI of the Prefill runtime: load a compiled module (`.pfm`), give it
 * weights, fill a KV cache from a prompt.
 *
 * Objects are opaque and are released by their *_destroy function; passing NULL
 * to those is allowed. Every other function returns a prefill_status; on
 * failure prefill_last_error() describes it in one line (thread local, valid
 * until the next call on that thread) that names the thing, its value and what
 * was expected. A handle outlives what is made from it: destroy sessions and
 * caches before weights, weights before modules, modules before devices. One
 * session is used by one thread at a time; different sessions may run at the
 * same time.
 */
#ifndef PREFILL_RUNTIME_H
#define PREFILL_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PREFILL_API __attribute__((visibility("default")))
#else
#define PREFILL_API
#endif

typedef struct prefill_device prefill_device;
typedef struct prefill_module prefill_module;
typedef struct prefill_weights prefill_weights;
typedef struct prefill_kv_cache prefill_kv_cache;
typedef struct prefill_session prefill_session;

typedef enum prefill_status {
  PREFILL_OK = 0,
  PREFILL_INVALID_ARGUMENT =
      1, /* token out of range, prompt longer than max_seq, unknown option */
  PREFILL_INVALID_MODULE = 2, /* malformed or incompatible .pfm */
  PREFILL_INVALID_WEIGHTS =
      3, /* malformed checkpoint, missing tensor, wrong shape or dtype */
  PREFILL_OUT_OF_MEMORY = 4, /* the message names the memory class */
  PREFILL_UNSUPPORTED = 5,   /* no device, no code for this CPU */
  PREFILL_IO_ERROR = 6
} prefill_status;

/* The four memory classes (bytes). */
typedef struct prefill_memory {
  uint64_t weights_bytes, activation_peak_bytes, kv_cache_bytes,
      temporaries_bytes;
} prefill_memory;

typedef struct prefill_module_info {
  const char *model_type; /* "llama", "mistral", "qwen2", "qwen3" */
  const char *dtype;      /* "f32", "bf16" */
  const char
      *kv_layout; /* "contiguous", "head_major", "paged_nhd", "paged_vnni" */
  int64_t vocab_size, hidden_size, num_layers, num_q_heads, num_kv_heads,
      head_dim, max_seq, kv_block_size, sliding_window;
  /* Of calls of any number of tokens; short ones may have launches of their
   * own (prefill_session_num_launches). kernels_per_layer: the largest number
   * of launches that carry one layer's index. */
  int64_t num_launches, kernels_per_layer;
} prefill_module_info;

typedef struct prefill_launch_info {
  const char *name;
  int32_t layer; /* -1 outside the layers */
} prefill_launch_info;

/* Called from the loading thread: `phase` is "load" once the checkpoint has
 * been opened and checked, then "pack" while weights are read, transformed and
 * stored. With a cache, "verify" while its file is compared with its checksums,
 * "map" once it is mapped, and "save" while it is written. done and total are
 * bytes. */
typedef void (*prefill_progress_fn)(const char *phase, uint64_t done,
                                    uint64_t total, void *user);

PREFILL_API const char *prefill_last_error(void);
PREFILL_API const char *prefill_version(void);

/* name: "cpu", or "cpu:avx2", "cpu:avx_vnni", "cpu:avx512", "cpu:avx512_vnni",
 * "cpu:avx512_bf16", "cpu:amx_bf16" to force an ISA variant, without which a
 * module runs with the best that it has and the CPU supports (avx512_vnni or
 * else avx512 in place of avx512_bf16 where half a millisecond of measuring,
 * once a process, finds that the CPU multiplies bf16 clearly faster by f32
 * multiply-adds than by vdpbf16ps; for amx_bf16 the process asks Linux for the
 * permission to use AMX, which makes frames of signals larger:
 * sysconf(_SC_MINSIGSTKSZ)); "cuda-emu:sm_80" and its like: the module's
 * kernels for that chip, executed and checked on this machine (slow); "cuda" or
 * "cuda:NUMBER". num_threads 0: one for each processor that this process may
 * use (SMT siblings are processors), but no more than its control groups have
 * processor time for: their quota over its period, rounded up. Any other number
 * is taken as it is. */
PREFILL_API prefill_status prefill_device_create(const char *name,
                                                 int num_threads,
                                                 prefill_device **out);
/* Of a cuda-emu device, before modules are loaded. seed: the order in which
 * threads of a block run (0: ascending). count_only: kernels are counted but
 * compute nothing, and memory is reserved without being there, so that large
 * models can be counted; prefill_weights_random then gives weights without
 * values, and logits mean nothing. */
PREFILL_API prefill_status prefill_device_set_emulation(prefill_device *,
                                                        uint64_t seed,
                                                        int count_only);
PREFILL_API void prefill_device_destroy(prefill_device *);

PREFILL_API prefill_status prefill_module_load_file(prefill_device *,
                                                    const char *path,
                                                    prefill_module **out);
PREFILL_API prefill_status prefill_module_load_memory(prefill_device *,
                                                      const void *data,
                                                      size_t size,
                                                      prefill_module **out);
PREFILL_API prefill_status prefill_module_get_info(const prefill_module *,
                                                   prefill_module_info *out);
/* index: less than num_launches. */
PREFILL_API prefill_status prefill_module_get_launch(const prefill_module *,
                                                     int64_t index,
                                                     prefill_launch_info *out);
PREFILL_API const char *
prefill_module_variant(const prefill_module *); /* the chosen ISA variant, or
                                               the chip */
PREFILL_API void prefill_module_destroy(prefill_module *);

/* directory: config.json (read for consistency) and *.safetensors, one file or
 * sharded with an index. */
PREFILL_API prefill_status prefill_weights_load(prefill_module *,
                                                const char *directory,
                                                prefill_progress_fn, void *user,
                                                prefill_weights **out);
/* The same with a file of packed weights, which makes the next start many times
 * faster: when it belongs to this module's weights and to this checkpoint (same
 * files by name, size, time of modification, header and a sample of the data),
 * it is mapped, read-only, and shared with other processes; else the checkpoint
 * is read, and prefill_weights_write_cache may make the file. cache_file: the
 * file, or NULL for MODEL.pfm.weights beside the module's file, then
 * $XDG_CACHE_HOME/prefill (or ~/.cache/prefill). verify: compare every tensor
 * with its checksum first (reads the whole file; without, damage inside the
 * data goes unseen, as it does in a checkpoint). A file that is truncated,
 * damaged or of other weights is no failure: prefill_weights_get_cache tells.
 */
PREFILL_API prefill_status prefill_weights_load_cached(
    prefill_module *, const char *directory, const char *cache_file, int verify,
    prefill_progress_fn, void *user, prefill_weights **out);
typedef struct prefill_weights_cache {
  int used;         /* 1: the weights are those of `file` */
  const char *file; /* "": none was used, and none is written yet */
  const char
      *rejected; /* one line: what was found but not used, and why; or "" */
} prefill_weights_cache;
/* The strings live as long as the weights, up to the next call below. */
PREFILL_API prefill_status
prefill_weights_get_cache(const prefill_weights *, prefill_weights_cache *out);
/* Writes the file, unless the weights came from it. Safe at any time before the
 * weights are destroyed, also beside running sessions. The file appears
 * complete or not at all; what was in its place is replaced. */
PREFILL_API prefill_status prefill_weights_write_cache(prefill_weights *,
                                                       prefill_progress_fn,
                                                       void *user);
/* Deterministic in (seed, tensor name, element index): the same on every
 * machine and for every thread count. */
PREFILL_API prefill_status prefill_weights_random(prefill_module *,
                                                  uint64_t seed,
                                                  prefill_progress_fn,
                                                  void *user,
                                                  prefill_weights **out);
PREFILL_API void prefill_weights_destroy(prefill_weights *);

/* capacity: tokens for each sequence (at most max_seq; 0: max_seq). */
PREFILL_API prefill_status prefill_kv_cache_create(prefill_module *,
                                                   int64_t num_sequences,
                                                   int64_t capacity,
                                                   prefill_kv_cache **out);
/* Tokens stored for a sequence. */
PREFILL_API int64_t prefill_kv_cache_length(const prefill_kv_cache *,
                                            int64_t sequence);
/* Drop tokens from the end: length becomes `length` (0 empties the sequence).
 */
PREFILL_API prefill_status prefill_kv_cache_truncate(prefill_kv_cache *,
                                                     int64_t sequence,
                                                     int64_t length);
/* The keys and values of one layer and sequence, gathered as f32 [length,
 * num_kv_heads, head_dim] each. */
PREFILL_API prefill_status prefill_kv_cache_read(const prefill_kv_cache *,
                                                 int64_t layer,
                                                 int64_t sequence, float *keys,
                                                 float *values);
/* Test hook: fill every slot that holds no token with NaN, and hand out free
 * blocks in another order from then on. */
PREFILL_API prefill_status prefill_kv_cache_poison_unused(prefill_kv_cache *);
PREFILL_API void prefill_kv_cache_destroy(prefill_kv_cache *);

PREFILL_API prefill_status prefill_session_create(prefill_module *,
                                                  prefill_weights *,
                                                  prefill_kv_cache *,
                                                  prefill_session **out);
/* Appends `num_tokens` tokens to sequence 0 of the cache. logits: f32
 * [vocab_size] of the last token, or with all_logits [num_tokens, vocab_size].
 * Works on an empty cache and continues a filled one (chunked prefill). */
PREFILL_API prefill_status prefill_session_prefill(prefill_session *,
                                                   const int32_t *tokens,
                                                   int64_t num_tokens,
                                                   int all_logits,
                                                   float *logits);
/* The ragged form: sequence i appends tokens[cu_seqlens[i] .. cu_seqlens[i+1])
 * to cache sequence sequences[i]. logits: f32 [num_sequences, vocab_size], the
 * last row of each. A sequence may appear once. */
PREFILL_API prefill_status prefill_session_prefill_batch(
    prefill_session *, const int32_t *tokens, const int32_t *cu_seqlens,
    const int32_t *sequences, int64_t num_sequences, float *logits);
/* One token for sequence 0: the same module with M = 1. */
PREFILL_API prefill_status prefill_session_decode(prefill_session *,
                                                  int32_t token, float *logits);
PREFILL_API prefill_status prefill_session_memory(const prefill_session *,
                                                  prefill_memory *out);
/* Floating-point operations of the last call (2 per multiply-accumulate, the
 * visible part of attention only). */
PREFILL_API uint64_t prefill_session_flops(const prefill_session *);
/* What the last call launched, which depends on its number of tokens; before
 * the first call what prefill_module_info says. 0 for NULL. */
PREFILL_API int64_t prefill_session_num_launches(const prefill_session *);
PREFILL_API int64_t prefill_session_kernels_per_layer(const prefill_session *);
PREFILL_API prefill_status prefill_session_get_launch(const prefill_session *,
                                                      int64_t index,
                                                      prefill_launch_info *out);
/* Times each launch of the calls from now on, even where that costs speed: a
 * GPU replays calls of lengths that come again as one graph otherwise, whose
 * launches have no times. Other devices always do. */
PREFILL_API prefill_status prefill_session_set_timing(prefill_session *,
                                                      int enabled);
/* Start and duration in nanoseconds of launch `index` in the last call (0 is
 * the start of the call). PREFILL_UNSUPPORTED where launches were not
 * timed. */
PREFILL_API prefill_status prefill_session_launch_time(const prefill_session *,
                                                       int64_t index,
                                                       uint64_t *start_ns,
                                                       uint64_t *duration_ns);
/* Test hook: before each call fill the activation arena and the scratch with
 * NaN and put canaries behind every buffer; a call that writes outside its
 * buffers then fails with PREFILL_INVALID_MODULE and names the kernel and the
 * buffer. Rows that exist only for padding hold NaN for every kernel. Needs
 * more memory: buffers do not share any. */
PREFILL_API prefill_status prefill_session_set_poison(prefill_session *,
                                                      int enabled);
/* What each launch of the last call asked of an emulated device: a JSON array
 * (docs/emulator.md), valid until the next call below; "" on other devices. */
PREFILL_API prefill_status prefill_session_counters(prefill_session *,
                                                    const char **json);
PREFILL_API void prefill_session_destroy(prefill_session *);

#ifdef __cplusplus
}
#endif
#endif /* PREFILL_RUNTIME_H */
