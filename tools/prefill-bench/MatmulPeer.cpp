#include "MatmulPeer.h"
#include "Machine.h"
#include "MatmulPeerABI.h"
#include "ModuleStore.h"

#include <algorithm>
#include <chrono>
#include <dlfcn.h>
#include <thread>
#include <vector>

using namespace prefill::bench;
using prefill::rt::Error;
using prefill::rt::ErrorCode;

namespace {

struct Library {
  const prefill_matmul_peer *peer = nullptr;
  std::string reason; ///< when there is none
};

Library openLibrary() {
#ifndef PREFILL_BENCH_HAS_ONEDNN
  return {nullptr, "oneDNN was not found when prefill-bench was built"};
#else
  std::string directory = executableDirectory(), reason;
  for (const char *place : {"/", "/../lib/", "/../" PREFILL_LIBDIR "/"}) {
    std::string path = directory + place + "prefill-bench-onednn.so";
    void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char *text = ::dlerror();
      // "no such file" of the last place says less than what went wrong with a
      // file that is there.
      if (reason.empty() || !std::string(text).ends_with("directory") ||
          std::string(text).find(path) == std::string::npos)
        reason = text;
      continue;
    }
    auto get = reinterpret_cast<prefill_matmul_peer_get_fn>(
        ::dlsym(library, "prefill_matmul_peer_get"));
    if (get)
      return {get(), ""};
    reason = path + " does not define prefill_matmul_peer_get";
  }
  return {nullptr, reason};
#endif
}

/// Empty: the best that there is.
std::string &isaLimit() {
  static std::string limit;
  return limit;
}

Library openWithLimit() {
  Library opened = openLibrary();
  const std::string &limit = isaLimit();
  if (!opened.peer || limit.empty() || opened.peer->limit_isa(limit.c_str()))
    return opened;
  return {nullptr,
          std::string(opened.peer->version) + " cannot be limited to " + limit};
}

const Library &library() {
  static const Library opened = openWithLimit();
  return opened;
}

} // namespace

std::string MatmulPeer::version() {
  return library().peer ? library().peer->version : "";
}

std::string MatmulPeer::isa() {
  return library().peer ? library().peer->isa() : "";
}

void MatmulPeer::limitIsa(const std::string &isa) { isaLimit() = isa; }

Result<std::unique_ptr<MatmulPeer>> MatmulPeer::create(const std::string &dtype,
                                                       int64_t m, int64_t n,
                                                       int64_t k, int threads) {
  const Library &opened = library();
  if (!opened.peer)
    return Error{ErrorCode::unsupported, opened.reason};
  char error[400] = "";
  uint64_t bytes = 2 * std::max<uint64_t>(cacheSizes().l3, 32 << 20);
  void *handle = opened.peer->create(dtype.c_str(), m, n, k, threads, bytes,
                                     error, sizeof error);
  if (!handle)
    return Error{ErrorCode::unsupported,
                 std::string(opened.peer->version) + ": " + error};
  return std::unique_ptr<MatmulPeer>(new MatmulPeer(handle, threads));
}

MatmulPeer::~MatmulPeer() { library().peer->destroy(handle); }

void MatmulPeer::run() { library().peer->run(handle); }

void MatmulPeer::settle() const {
  if (threads > 1)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}
