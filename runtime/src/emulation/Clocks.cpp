#include "emulation/Clocks.h"

#include <algorithm>

using namespace prefill::rt::emulation;

bool Clocks::beginBlock(int numWarps) {
  Stamp last = *std::max_element(clock, clock + maxWarps);
  bool roomLeft = last < UINT32_MAX / 2;
  start = roomLeft ? last + 1 : 1;
  std::fill(clock, clock + maxWarps, start);
  for (auto &row : warps)
    std::fill(row, row + maxWarps, start - 1);
  lanes.resize(numWarps);
  for (Lanes &warp : lanes)
    std::fill(&warp.seen[0][0], &warp.seen[0][0] + warpLanes * warpLanes,
              start - 1);
  return roomLeft;
}

void Clocks::syncLanes(int warp, uint32_t mask) {
  auto &seen = lanes[warp].seen;
  Stamp joined[warpLanes] = {};
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const Stamp *row = seen[__builtin_ctz(rest)];
    for (int other = 0; other < warpLanes; ++other)
      joined[other] = std::max(joined[other], row[other]);
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1)
    joined[__builtin_ctz(rest)] = clock[warp];
  for (uint32_t rest = mask; rest; rest &= rest - 1)
    std::copy(joined, joined + warpLanes, seen[__builtin_ctz(rest)]);
  ++clock[warp];
}

void Clocks::syncWarps(uint32_t mask) {
  Stamp joined[maxWarps] = {};
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const Stamp *row = warps[__builtin_ctz(rest)];
    for (int other = 0; other < maxWarps; ++other)
      joined[other] = std::max(joined[other], row[other]);
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int warp = __builtin_ctz(rest);
    joined[warp] = clock[warp];
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int warp = __builtin_ctz(rest);
    std::copy(joined, joined + maxWarps, warps[warp]);
    std::fill(&lanes[warp].seen[0][0],
              &lanes[warp].seen[0][0] + warpLanes * warpLanes, clock[warp]);
    ++clock[warp];
  }
}
