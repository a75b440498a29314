#include "emulation/WarpInstructions.h"
#include "prefill/checkpoint/FloatConversion.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <immintrin.h>

using namespace prefill::rt;
using namespace prefill::rt::emulation;

namespace {

/// Both halves of a register.
__attribute__((target("f16c"))) inline void unpack(uint32_t word, MmaType type,
                                                   float &low, float &high) {
  if (type == MmaType::bf16) {
    low = std::bit_cast<float>(word << 16);
    high = std::bit_cast<float>(word & 0xffff0000u);
    return;
  }
  __m128 both = _mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(word)));
  low = _mm_cvtss_f32(both);
  high = _mm_cvtss_f32(_mm_movehdup_ps(both));
}

} // namespace

__attribute__((target("avx2,fma,f16c"))) void
prefill::rt::emulation::multiplyMatrices(const uint32_t *const operands[32],
                                         uint32_t *const results[32],
                                         MmaType type) {
  constexpr int m = 16, n = 8, k = 16;
  alignas(32) float a[m][k], b[k][n], c[m][n];
  for (int lane = 0; lane < 32; ++lane) {
    int group = lane / 4, column = lane % 4 * 2;
    const uint32_t *words = operands[lane];
    for (int i = 0; i < 4; ++i) { // rows +8 in odd registers, columns in upper
      float *to = &a[group + i % 2 * 8][column + i / 2 * 8];
      unpack(words[i], type, to[0], to[1]);
    }
    for (int i = 0; i < 2; ++i)
      unpack(words[4 + i], type, b[column + i * 8][group],
             b[column + i * 8 + 1][group]);
    for (int i = 0; i < 4; ++i)
      c[group + i / 2 * 8][column + i % 2] = std::bit_cast<float>(words[6 + i]);
  }
  for (int row = 0; row < m; ++row) {
    __m256 sum = _mm256_load_ps(c[row]);
    for (int inner = 0; inner < k; ++inner)
      sum = _mm256_fmadd_ps(_mm256_set1_ps(a[row][inner]),
                            _mm256_load_ps(b[inner]), sum);
    _mm256_store_ps(c[row], sum);
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      results[lane][i] = std::bit_cast<uint32_t>(
          c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
}

void prefill::rt::emulation::distributeMatrices(const uint8_t *const rows[32],
                                                int matrices, bool transposed,
                                                uint32_t *const results[32]) {
  for (int matrix = 0; matrix < matrices; ++matrix) {
    uint16_t elements[8][8];
    for (int row = 0; row < 8; ++row)
      std::memcpy(elements[row], rows[matrix * 8 + row], 16);
    for (int lane = 0; lane < 32; ++lane) {
      int i = lane / 4, j = lane % 4 * 2;
      uint32_t low = transposed ? elements[j][i] : elements[i][j];
      uint32_t high = transposed ? elements[j + 1][i] : elements[i][j + 1];
      results[lane][matrix] = low | high << 16;
    }
  }
}

int prefill::rt::emulation::shuffleSource(ShuffleKind kind, int lane,
                                          uint32_t offset, uint32_t clamp,
                                          bool &inRange) {
  int b = static_cast<int>(offset & 31), c = static_cast<int>(clamp & 31);
  int segment = static_cast<int>(clamp >> 8 & 31);
  int last = (lane & segment) | (c & ~segment & 31);
  int source = 0;
  switch (kind) {
  case ShuffleKind::up:
    source = lane - b;
    inRange = source >= last;
    break;
  case ShuffleKind::down:
    source = lane + b;
    inRange = source <= last;
    break;
  case ShuffleKind::butterfly:
    source = lane ^ b;
    inRange = source <= last;
    break;
  case ShuffleKind::index:
    source = (lane & segment) | (b & ~segment & 31);
    inRange = source <= last;
    break;
  }
  return inRange ? source : lane;
}

uint32_t prefill::rt::emulation::reduce(ReduxKind kind,
                                        const uint32_t values[32],
                                        uint32_t mask) {
  uint32_t result = values[std::countr_zero(mask)];
  for (uint32_t rest = mask & (mask - 1); rest; rest &= rest - 1) {
    uint32_t value = values[std::countr_zero(rest)];
    auto lower = [](uint32_t x, uint32_t y) {
      return static_cast<int32_t>(x) < static_cast<int32_t>(y);
    };
    switch (kind) {
    case ReduxKind::add:
      result += value;
      break;
    case ReduxKind::bitAnd:
      result &= value;
      break;
    case ReduxKind::bitOr:
      result |= value;
      break;
    case ReduxKind::bitXor:
      result ^= value;
      break;
    case ReduxKind::max:
      result = lower(result, value) ? value : result;
      break;
    case ReduxKind::min:
      result = lower(value, result) ? value : result;
      break;
    case ReduxKind::umax:
      result = std::max(result, value);
      break;
    case ReduxKind::umin:
      result = std::min(result, value);
      break;
    }
  }
  return result;
}

uint32_t prefill::rt::emulation::vote(VoteKind kind, uint32_t predicates,
                                      uint32_t mask) {
  predicates &= mask;
  switch (kind) {
  case VoteKind::any:
    return predicates != 0;
  case VoteKind::all:
    return predicates == mask;
  case VoteKind::ballot:
    return predicates;
  case VoteKind::uniform:
    return predicates == 0 || predicates == mask;
  }
  return 0;
}
