#include "ProbeLoops.h"
#include "cpu/MultiplyLoops.h"

#include <immintrin.h>

using namespace prefill::bench;
using prefill::rt::hostSupports;
using prefill::rt::IsaVariant;

namespace {

/// What ldtilecfg reads: every tile of 16 rows x 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, startRow = 0, reserved[14] = {};
  uint16_t columnBytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

/// A tile's product takes 16 cycles of the unit and about 52 to be there:
/// accumulators of four in flight, as kernels have them, 2 x 2 of operands.
/// No clobbers: no compiler uses tiles by itself.
void loopTileBf16(int64_t repetitions) {
  static const TileConfig config;
  asm volatile("ldtilecfg %0\n\t"
               "tilezero %%tmm0\n\ttilezero %%tmm1\n\t"
               "tilezero %%tmm2\n\ttilezero %%tmm3\n\t"
               "tilezero %%tmm4\n\ttilezero %%tmm5\n\t"
               "tilezero %%tmm6\n\ttilezero %%tmm7"
               :
               : "m"(config));
  for (int64_t i = 0; i < repetitions; ++i)
    asm volatile("tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
                 "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
                 "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
                 "tdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::);
  asm volatile("tilerelease" ::);
}

/// Eight loads a turn from each of `numStreams` parts: several streams keep
/// more of the hardware's prefetchers busy than one.
constexpr size_t numStreams = 4;

__attribute__((target("avx512f"))) void readZmm(const std::byte *memory,
                                                size_t bytes) {
  size_t part = bytes / numStreams;
  for (size_t at = 0; at < part; at += 256)
    for (size_t stream = 0; stream < numStreams; ++stream) {
      const std::byte *p = memory + stream * part + at;
      asm volatile("vmovaps (%0), %%zmm0\n\t"
                   "vmovaps 64(%0), %%zmm1\n\t"
                   "vmovaps 128(%0), %%zmm2\n\t"
                   "vmovaps 192(%0), %%zmm3"
                   :
                   : "r"(p)
                   : "memory", "xmm0", "xmm1", "xmm2", "xmm3");
    }
}

__attribute__((target("avx2"))) void readYmm(const std::byte *memory,
                                             size_t bytes) {
  size_t part = bytes / numStreams;
  for (size_t at = 0; at < part; at += 128)
    for (size_t stream = 0; stream < numStreams; ++stream) {
      const std::byte *p = memory + stream * part + at;
      asm volatile("vmovaps (%0), %%ymm0\n\t"
                   "vmovaps 32(%0), %%ymm1\n\t"
                   "vmovaps 64(%0), %%ymm2\n\t"
                   "vmovaps 96(%0), %%ymm3"
                   :
                   : "r"(p)
                   : "memory", "xmm0", "xmm1", "xmm2", "xmm3");
    }
}

} // namespace

prefill::bench::ArithmeticLoop prefill::bench::arithmeticLoop(Peak peak) {
  // A multiply-accumulate is two operations; tdpbf16ps does 32 for each of
  // 16 x 16 elements.
  switch (peak) {
  case Peak::tileBf16:
    return {loopTileBf16, 4 * 16 * 16 * 32 * 2.0};
  case Peak::dotBf16Zmm:
    return {rt::loopDotBf16Zmm, rt::flopsDotBf16Zmm};
  case Peak::dotInt8Ymm:
    return {rt::loopDotInt8Ymm, rt::flopsDotInt8Ymm};
  case Peak::dotInt8Zmm:
    return {rt::loopDotInt8Zmm, rt::flopsDotInt8Zmm};
  case Peak::fmaZmm:
    return {rt::loopFmaZmm, rt::flopsFmaZmm};
  default:
    return {rt::loopFmaYmm, rt::flopsFmaYmm};
  }
}

void prefill::bench::readStream(const std::byte *memory, size_t bytes) {
  static const bool wide = hostSupports(IsaVariant::avx512);
  if (wide)
    readZmm(memory, bytes);
  else
    readYmm(memory, bytes);
}
