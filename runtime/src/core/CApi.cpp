// The C ABI: opaque handles around the classes of core/. No exception and no
// C++ type crosses it.
#include "prefill/runtime.h"

#include "core/Device.h"
#include "core/KVCache.h"
#include "core/LoadedModule.h"
#include "core/ResidentWeights.h"
#include "core/Session.h"
#include "core/TensorSource.h"
#include "core/WeightsCache.h"

#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

using namespace prefill::rt;

struct prefill_device {
  std::unique_ptr<Device> impl;
};
struct prefill_module {
  std::unique_ptr<LoadedModule> impl;
  std::string variant = impl->code().variant();
};
struct prefill_weights {
  std::unique_ptr<ResidentWeights> impl;
  std::optional<WeightsCache> cache = std::nullopt;
  bool cacheUsed = false;
};
struct prefill_kv_cache {
  std::unique_ptr<KVCache> impl;
};
struct prefill_session {
  std::unique_ptr<Session> impl;
  std::string counters = "";
};

static_assert(int(ErrorCode::invalidArgument) == PREFILL_INVALID_ARGUMENT &&
              int(ErrorCode::invalidModule) == PREFILL_INVALID_MODULE &&
              int(ErrorCode::invalidWeights) == PREFILL_INVALID_WEIGHTS &&
              int(ErrorCode::outOfMemory) == PREFILL_OUT_OF_MEMORY &&
              int(ErrorCode::unsupported) == PREFILL_UNSUPPORTED &&
              int(ErrorCode::io) == PREFILL_IO_ERROR);

namespace {

thread_local std::string lastError;

prefill_status fail(Error error) {
  lastError = std::move(error.message);
  return static_cast<prefill_status>(error.code);
}

prefill_status nullArgument() {
  return fail({ErrorCode::invalidArgument, "a pointer is NULL"});
}

/// Runs `body`, which returns a prefill_status, and turns what the standard
/// library throws into one.
template <typename Body> prefill_status guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return fail(
        {ErrorCode::outOfMemory,
         "out of memory: class temporaries: bookkeeping of the runtime"});
  } catch (const std::exception &error) {
    return fail({ErrorCode::io, error.what()});
  }
}

prefill_status status(Result<void> result) {
  return result ? PREFILL_OK : fail(result.takeError());
}

/// Puts the object of a successful result into a new handle.
template <typename Handle, typename T>
prefill_status wrap(Result<std::unique_ptr<T>> result, Handle **out) {
  if (!result)
    return fail(result.takeError());
  *out = new Handle{std::move(*result)};
  return PREFILL_OK;
}

const char *dtypeName(prefill::module::DType dtype) {
  switch (dtype) {
  case prefill::module::DType::bf16:
    return "bf16";
  case prefill::module::DType::f16:
    return "f16";
  default:
    return "f32";
  }
}

/// `who` says whose launches they are, in the error of an index too many.
prefill_status getLaunch(const prefill::module::Plan &plan,
                         const prefill::module::Schedule &schedule,
                         int64_t index, const char *who,
                         prefill_launch_info *out) {
  const auto &launches = *schedule.launches();
  if (index < 0 || index >= launches.size())
    return fail({ErrorCode::invalidArgument,
                 "launch " + std::to_string(index) + ", but " + who + " " +
                     std::to_string(launches.size())});
  const prefill::module::Launch &launch = *launches[index];
  out->name = launch.name()
                  ? launch.name()->c_str()
                  : plan.kernels()->Get(launch.kernel())->name()->c_str();
  out->layer = launch.layer();
  return PREFILL_OK;
}

ResidentWeights::Progress makeProgress(prefill_progress_fn function,
                                       void *user) {
  if (!function)
    return nullptr;
  return [=](const char *phase, uint64_t done, uint64_t total) {
    function(phase, done, total, user);
  };
}

Result<std::unique_ptr<ResidentWeights>>
packWeights(const LoadedModule &module, const CheckpointSource &source,
            prefill_progress_fn progress, void *user) {
  if (Result<void> ok = source.checkUnread(module.plan()); !ok)
    return ok.takeError();
  uint64_t bytes = source.totalBytes();
  if (progress)
    progress("load", bytes, bytes, user);
  return ResidentWeights::load(module, source, makeProgress(progress, user));
}

} // namespace

const char *prefill_last_error(void) { return lastError.c_str(); }
const char *prefill_version(void) { return PREFILL_VERSION; }

prefill_status prefill_device_create(const char *name, int num_threads,
                                     prefill_device **out) {
  return guarded([&] {
    return name && out ? wrap(Device::create(name, num_threads), out)
                       : nullArgument();
  });
}
prefill_status prefill_device_set_emulation(prefill_device *device,
                                            uint64_t seed, int count_only) {
  if (!device)
    return nullArgument();
  return guarded([&] {
    return status(
        device->impl->backend().configureEmulation(seed, count_only != 0));
  });
}
void prefill_device_destroy(prefill_device *device) { delete device; }

prefill_status prefill_module_load_file(prefill_device *device,
                                        const char *path,
                                        prefill_module **out) {
  return guarded([&] {
    return device && path && out
               ? wrap(LoadedModule::loadFile(*device->impl, path), out)
               : nullArgument();
  });
}

prefill_status prefill_module_load_memory(prefill_device *device,
                                          const void *data, size_t size,
                                          prefill_module **out) {
  return guarded([&] {
    return device && data && out
               ? wrap(LoadedModule::loadMemory(*device->impl, data, size), out)
               : nullArgument();
  });
}

prefill_status prefill_module_get_info(const prefill_module *module,
                                       prefill_module_info *out) {
  if (!module || !out)
    return nullArgument();
  return guarded([&] {
    const prefill::module::Module &file = module->impl->file();
    const prefill::module::KVCacheSpec &cache = *file.kv_cache();
    *out = {};
    out->model_type = file.model_type()->c_str();
    out->dtype = dtypeName(file.dtype());
    out->kv_layout = stringify(cache.layout());
    out->vocab_size = file.vocab_size();
    out->hidden_size = file.hidden_size();
    out->num_layers = file.num_layers();
    out->num_q_heads = file.num_q_heads();
    out->num_kv_heads = cache.num_kv_heads();
    out->head_dim = cache.head_dim_qk();
    out->max_seq = file.max_seq();
    out->kv_block_size = cache.block_size();
    out->sliding_window = file.sliding_window();
    const prefill::module::Schedule &schedule =
        lastSchedule(module->impl->plan());
    out->num_launches = schedule.launches()->size();
    out->kernels_per_layer = kernelsPerLayer(schedule);
    return PREFILL_OK;
  });
}

prefill_status prefill_module_get_launch(const prefill_module *module,
                                         int64_t index,
                                         prefill_launch_info *out) {
  if (!module || !out)
    return nullArgument();
  const prefill::module::Plan &plan = module->impl->plan();
  return getLaunch(plan, lastSchedule(plan), index, "the module has", out);
}

const char *prefill_module_variant(const prefill_module *module) {
  return module ? module->variant.c_str() : "";
}
void prefill_module_destroy(prefill_module *module) { delete module; }

/// Calls `load` with the checkpoint in `directory`.
template <typename Load>
static prefill_status withCheckpoint(const prefill_module *module,
                                     const char *directory,
                                     prefill_weights **out, Load load) {
  if (!module || !directory || !out)
    return nullArgument();
  return guarded([&] {
    Result<CheckpointSource> source =
        CheckpointSource::open(directory, module->impl->file());
    if (!source)
      return fail(source.takeError());
    return load(*source);
  });
}

prefill_status prefill_weights_load(prefill_module *module,
                                    const char *directory,
                                    prefill_progress_fn progress, void *user,
                                    prefill_weights **out) {
  return withCheckpoint(module, directory, out, [&](CheckpointSource &source) {
    return wrap(packWeights(*module->impl, source, progress, user), out);
  });
}

prefill_status prefill_weights_load_cached(prefill_module *module,
                                           const char *directory,
                                           const char *cache_file, int verify,
                                           prefill_progress_fn progress,
                                           void *user, prefill_weights **out) {
  return withCheckpoint(module, directory, out, [&](CheckpointSource &source) {
    Result<WeightsCache> cache = WeightsCache::create(
        *module->impl, source, cache_file ? cache_file : "");
    if (!cache)
      return fail(cache.takeError());
    Result<std::unique_ptr<ResidentWeights>> weights =
        cache->load(verify != 0, makeProgress(progress, user));
    bool used = weights && *weights;
    if (weights && !used)
      weights = packWeights(*module->impl, source, progress, user);
    if (!weights)
      return fail(weights.takeError());
    *out = new prefill_weights{std::move(*weights), std::move(*cache), used};
    return PREFILL_OK;
  });
}

prefill_status prefill_weights_get_cache(const prefill_weights *weights,
                                         prefill_weights_cache *out) {
  if (!weights || !out)
    return nullArgument();
  *out = {weights->cacheUsed, "", ""};
  if (weights->cache) {
    out->file = weights->cache->file().c_str();
    out->rejected = weights->cache->rejected().c_str();
  }
  return PREFILL_OK;
}

prefill_status prefill_weights_write_cache(prefill_weights *weights,
                                           prefill_progress_fn progress,
                                           void *user) {
  if (!weights)
    return nullArgument();
  if (!weights->cache)
    return fail({ErrorCode::invalidArgument,
                 "the weights have no cache, expected weights of "
                 "prefill_weights_load_cached"});
  if (weights->cacheUsed)
    return PREFILL_OK;
  return guarded([&] {
    return status(
        weights->cache->write(*weights->impl, makeProgress(progress, user)));
  });
}

prefill_status prefill_weights_random(prefill_module *module, uint64_t seed,
                                      prefill_progress_fn progress, void *user,
                                      prefill_weights **out) {
  if (!module || !out)
    return nullArgument();
  return guarded([&] {
    if (module->impl->device().backend().countsOnly())
      return wrap(ResidentWeights::reserve(*module->impl), out);
    return wrap(ResidentWeights::load(*module->impl, RandomSource(seed),
                                      makeProgress(progress, user)),
                out);
  });
}
void prefill_weights_destroy(prefill_weights *weights) { delete weights; }

prefill_status prefill_kv_cache_create(prefill_module *module,
                                       int64_t num_sequences, int64_t capacity,
                                       prefill_kv_cache **out) {
  if (!module || !out)
    return nullArgument();
  return guarded([&] {
    return wrap(KVCache::create(*module->impl, num_sequences, capacity), out);
  });
}

int64_t prefill_kv_cache_length(const prefill_kv_cache *cache,
                                int64_t sequence) {
  if (!cache || sequence < 0 || sequence >= cache->impl->numSequences())
    return 0;
  return cache->impl->length(sequence);
}

prefill_status prefill_kv_cache_truncate(prefill_kv_cache *cache,
                                         int64_t sequence, int64_t length) {
  if (!cache)
    return nullArgument();
  return guarded(
      [&] { return status(cache->impl->truncate(sequence, length)); });
}

prefill_status prefill_kv_cache_read(const prefill_kv_cache *cache,
                                     int64_t layer, int64_t sequence,
                                     float *keys, float *values) {
  if (!cache || !keys || !values)
    return nullArgument();
  return guarded(
      [&] { return status(cache->impl->read(layer, sequence, keys, values)); });
}

prefill_status prefill_kv_cache_poison_unused(prefill_kv_cache *cache) {
  if (!cache)
    return nullArgument();
  return guarded([&] { return status(cache->impl->poisonUnused()); });
}
void prefill_kv_cache_destroy(prefill_kv_cache *cache) { delete cache; }

prefill_status prefill_session_create(prefill_module *module,
                                      prefill_weights *weights,
                                      prefill_kv_cache *cache,
                                      prefill_session **out) {
  if (!module || !weights || !cache || !out)
    return nullArgument();
  return guarded([&] {
    return wrap(Session::create(*module->impl, *weights->impl, *cache->impl),
                out);
  });
}

prefill_status prefill_session_prefill(prefill_session *session,
                                       const int32_t *tokens,
                                       int64_t num_tokens, int all_logits,
                                       float *logits) {
  if (!session)
    return nullArgument();
  if (num_tokens < 1 || num_tokens > INT32_MAX)
    return fail({ErrorCode::invalidArgument,
                 "the prompt has " + std::to_string(num_tokens) +
                     " tokens, expected 1 to 2^31 - 1"});
  int32_t cuSeqlens[2] = {0, static_cast<int32_t>(num_tokens)};
  int32_t sequence = 0;
  return guarded([&] {
    return status(session->impl->run(tokens, cuSeqlens, &sequence, 1,
                                     all_logits != 0, logits));
  });
}

prefill_status prefill_session_prefill_batch(
    prefill_session *session, const int32_t *tokens, const int32_t *cu_seqlens,
    const int32_t *sequences, int64_t num_sequences, float *logits) {
  if (!session)
    return nullArgument();
  return guarded([&] {
    return status(session->impl->run(tokens, cu_seqlens, sequences,
                                     num_sequences, false, logits));
  });
}

prefill_status prefill_session_decode(prefill_session *session, int32_t token,
                                      float *logits) {
  return prefill_session_prefill(session, &token, 1, 0, logits);
}

prefill_status prefill_session_memory(const prefill_session *session,
                                      prefill_memory *out) {
  if (!session || !out)
    return nullArgument();
  const Session &impl = *session->impl;
  *out = {impl.memory(MemoryClass::weights),
          impl.memory(MemoryClass::activationPeak),
          impl.memory(MemoryClass::kvCache),
          impl.memory(MemoryClass::temporaries)};
  return PREFILL_OK;
}

uint64_t prefill_session_flops(const prefill_session *session) {
  return session ? session->impl->flops() : 0;
}

int64_t prefill_session_num_launches(const prefill_session *session) {
  return session ? session->impl->schedule().launches()->size() : 0;
}

int64_t prefill_session_kernels_per_layer(const prefill_session *session) {
  return session ? kernelsPerLayer(session->impl->schedule()) : 0;
}

prefill_status prefill_session_get_launch(const prefill_session *session,
                                          int64_t index,
                                          prefill_launch_info *out) {
  if (!session || !out)
    return nullArgument();
  return getLaunch(session->impl->plan(), session->impl->schedule(), index,
                   "the last call had", out);
}

prefill_status prefill_session_launch_time(const prefill_session *session,
                                           int64_t index, uint64_t *start_ns,
                                           uint64_t *duration_ns) {
  if (!session || !start_ns || !duration_ns)
    return nullArgument();
  const auto &times = session->impl->launchTimes();
  if (session->impl->ranUntimed())
    return fail({ErrorCode::unsupported,
                 "the launches of the last call were not timed, it was one "
                 "graph; expected prefill_session_set_timing before it"});
  if (index < 0 || index >= static_cast<int64_t>(times.size()))
    return fail({ErrorCode::invalidArgument, "launch " + std::to_string(index) +
                                                 ", but the last call had " +
                                                 std::to_string(times.size())});
  *start_ns = times[index].startNs;
  *duration_ns = times[index].durationNs;
  return PREFILL_OK;
}

prefill_status prefill_session_set_timing(prefill_session *session,
                                          int enabled) {
  if (!session)
    return nullArgument();
  session->impl->setTiming(enabled != 0);
  return PREFILL_OK;
}

prefill_status prefill_session_set_poison(prefill_session *session,
                                          int enabled) {
  if (!session)
    return nullArgument();
  return guarded([&] {
    session->impl->setPoison(enabled != 0);
    return PREFILL_OK;
  });
}
prefill_status prefill_session_counters(prefill_session *session,
                                        const char **json) {
  if (!session || !json)
    return nullArgument();
  return guarded([&] {
    session->counters = session->impl->counters();
    *json = session->counters.c_str();
    return PREFILL_OK;
  });
}
void prefill_session_destroy(prefill_session *session) { delete session; }
