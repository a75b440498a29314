// prefill-bench-onednn.so: oneDNN's matmul behind MatmulPeerABI.h.
#include "MatmulPeerABI.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

using dnnl::memory;

namespace {

dnnl::engine &engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

/// Debian's libdnnl is built for OpenMP (libgomp): this thread's number of
/// threads is what its parallel regions get.
void setThreads(int threads) {
#if DNNL_CPU_THREADING_RUNTIME != DNNL_RUNTIME_OMP
#error "expected a oneDNN whose threading runtime is OpenMP"
#endif
  using Function = void (*)(int);
  void *symbol = ::dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  if (!symbol)
    if (void *runtime = ::dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD))
      symbol = ::dlsym(runtime, "omp_set_num_threads");
  if (!symbol)
    throw std::runtime_error(
        "omp_set_num_threads was not found, expected it in libgomp.so.1");
  reinterpret_cast<Function>(symbol)(threads);
}

/// B in one layout, several times. Matmuls of several M share it.
using Copies = std::vector<memory>;

/// Small integers without a period that a cache or a predictor could know.
float element(uint64_t index) {
  return float(int(index * 2654435761u >> 16 & 15) - 8);
}

memory makeOperand(const memory::dims &dims, dnnl::stream &stream,
                   const memory::desc &layout) {
  memory plain({dims, memory::data_type::f32, memory::format_tag::ab},
               engine());
  float *data = static_cast<float *>(plain.get_data_handle());
  for (int64_t i = 0; i < dims[0] * dims[1]; ++i)
    data[i] = element(i);
  memory converted(layout, engine());
  dnnl::reorder(plain, converted).execute(stream, plain, converted);
  stream.wait();
  return converted;
}

std::shared_ptr<Copies> shareWeights(const memory::dims &dims,
                                     const memory::desc &layout,
                                     dnnl::stream &stream, uint64_t bytes) {
  static std::vector<std::pair<memory::desc, std::weak_ptr<Copies>>> known;
  for (auto &[other, copies] : known)
    if (other == layout)
      if (std::shared_ptr<Copies> alive = copies.lock())
        return alive;
  auto copies = std::make_shared<Copies>();
  copies->push_back(makeOperand(dims, stream, layout));
  uint64_t size = layout.get_size();
  while (copies->size() * size < bytes) {
    memory copy(layout, engine());
    std::memcpy(copy.get_data_handle(), copies->front().get_data_handle(),
                size);
    copies->push_back(copy);
  }
  known.emplace_back(layout, copies);
  return copies;
}

struct Matmul {
  dnnl::matmul primitive;
  dnnl::stream stream;
  memory a, c;
  std::shared_ptr<Copies> b;
  size_t next = 0;
  int threads;
};

struct Types {
  memory::data_type factors, product;
};

Types parse(const std::string &dtype) {
  using Type = memory::data_type;
  if (dtype == "int8")
    return {Type::s8, Type::bf16};
  Type type = dtype == "bf16"  ? Type::bf16
              : dtype == "f16" ? Type::f16
                               : Type::f32;
  return {type, type};
}

void *create(const char *dtype, int64_t m, int64_t n, int64_t k, int threads,
             uint64_t copyBytes, char *error, size_t errorSize) {
  try {
    setThreads(threads);
    Types types = parse(dtype);
    auto matmul = std::make_unique<Matmul>();
    matmul->threads = threads;
    matmul->stream = dnnl::stream(engine());
    dnnl::matmul::primitive_desc chosen(
        dnnl::matmul::desc({{m, k}, types.factors, memory::format_tag::ab},
                           {{k, n}, types.factors, memory::format_tag::any},
                           {{m, n}, types.product, memory::format_tag::ab}),
        engine());
    matmul->primitive = dnnl::matmul(chosen);
    matmul->a = makeOperand({m, k}, matmul->stream, chosen.src_desc());
    matmul->b =
        shareWeights({k, n}, chosen.weights_desc(), matmul->stream, copyBytes);
    matmul->c = memory(chosen.dst_desc(), engine());
    return matmul.release();
  } catch (const std::exception &failure) {
    std::snprintf(error, errorSize, "%s", failure.what());
    return nullptr;
  }
}

void run(void *handle) {
  Matmul &matmul = *static_cast<Matmul *>(handle);
  setThreads(matmul.threads);
  matmul.next = (matmul.next + 1) % matmul.b->size();
  matmul.primitive.execute(matmul.stream,
                           {{DNNL_ARG_SRC, matmul.a},
                            {DNNL_ARG_WEIGHTS, (*matmul.b)[matmul.next]},
                            {DNNL_ARG_DST, matmul.c}});
  matmul.stream.wait();
}

void destroy(void *handle) { delete static_cast<Matmul *>(handle); }

int limitIsa(const char *name) {
  static const std::map<std::string, dnnl::cpu_isa> known = {
      {"avx2", dnnl::cpu_isa::avx2},
      {"avx_vnni", dnnl::cpu_isa::avx2_vnni},
      {"avx512", dnnl::cpu_isa::avx512_core},
      {"avx512_vnni", dnnl::cpu_isa::avx512_core_vnni},
      {"avx512_bf16", dnnl::cpu_isa::avx512_core_bf16}};
  auto isa = known.find(name);
  return isa != known.end() &&
         dnnl::set_max_cpu_isa(isa->second) == dnnl::status::success;
}

const char *effectiveIsa() {
  switch (dnnl::get_effective_cpu_isa()) {
  case dnnl::cpu_isa::avx2:
    return "avx2";
  case dnnl::cpu_isa::avx2_vnni:
    return "avx2_vnni";
  case dnnl::cpu_isa::avx512_core:
    return "avx512_core";
  case dnnl::cpu_isa::avx512_core_vnni:
    return "avx512_core_vnni";
  case dnnl::cpu_isa::avx512_core_bf16:
    return "avx512_core_bf16";
  case dnnl::cpu_isa::avx512_core_amx:
    return "avx512_core_amx";
  default:
    return "other";
  }
}

} // namespace

extern "C" __attribute__((visibility("default"))) const prefill_matmul_peer *
prefill_matmul_peer_get() {
  static const std::string version =
      "oneDNN " + std::to_string(dnnl_version()->major) + "." +
      std::to_string(dnnl_version()->minor) + "." +
      std::to_string(dnnl_version()->patch);
  static const prefill_matmul_peer peer = {
      create, run, destroy, version.c_str(), limitIsa, effectiveIsa};
  return &peer;
}
