// Continues a text with a compiled byte-level model (one token is one byte),
// greedily:
//   continue-text MODEL.pfm WEIGHTS_DIRECTORY TEXT NUM_TOKENS
// Prints the continuation and nothing else.
#include <prefill/runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

void check(prefill_status status) {
  if (status == PREFILL_OK)
    return;
  std::fprintf(stderr, "error: %s\n", prefill_last_error());
  std::exit(1);
}

template <typename T> using Handle = std::unique_ptr<T, void (*)(T *)>;

} // namespace

int main(int argc, char **argv) {
  if (argc != 5) {
    std::fprintf(
        stderr,
        "error: got %d arguments, expected MODEL.pfm WEIGHTS TEXT NUM_TOKENS\n",
        argc - 1);
    return 2;
  }
  std::string text = argv[3];
  int64_t numTokens = std::atoll(argv[4]);

  prefill_device *device = nullptr;
  check(prefill_device_create("cpu", /*num_threads=*/0, &device));
  Handle<prefill_device> deviceHandle(device, prefill_device_destroy);

  prefill_module *module = nullptr;
  check(prefill_module_load_file(device, argv[1], &module));
  Handle<prefill_module> moduleHandle(module, prefill_module_destroy);
  prefill_module_info info;
  check(prefill_module_get_info(module, &info));

  prefill_weights *weights = nullptr;
  check(prefill_weights_load(module, argv[2], /*progress=*/nullptr,
                             /*user=*/nullptr, &weights));
  Handle<prefill_weights> weightsHandle(weights, prefill_weights_destroy);

  prefill_kv_cache *cache = nullptr;
  check(prefill_kv_cache_create(module, /*num_sequences=*/1, /*capacity=*/0,
                                &cache));
  Handle<prefill_kv_cache> cacheHandle(cache, prefill_kv_cache_destroy);

  prefill_session *session = nullptr;
  check(prefill_session_create(module, weights, cache, &session));
  Handle<prefill_session> sessionHandle(session, prefill_session_destroy);

  std::vector<int32_t> tokens;
  for (unsigned char byte : text)
    tokens.push_back(byte);
  std::vector<float> logits(info.vocab_size);
  check(prefill_session_prefill(session, tokens.data(), tokens.size(),
                                /*all_logits=*/0, logits.data()));
  for (int64_t i = 0; i < numTokens; ++i) {
    auto next = static_cast<int32_t>(
        std::max_element(logits.begin(), logits.end()) - logits.begin());
    std::putchar(next);
    check(prefill_session_decode(session, next, logits.data()));
  }
  return 0;
}
