// Happens-before of one block: which accesses of shared memory are ordered by
// barriers and bar.warp.sync.
//
// Every access is stamped with the clock of its warp, which advances whenever
// threads of the warp synchronise. For each pair of warps and for each pair of
// lanes of a warp the latest stamp is kept that is known to lie in the past:
// vector clocks (Mattern 1989), coarser between warps than within one because a
// barrier takes in whole warps. Shuffles, votes and matrix instructions make
// lanes meet, but the PTX ISA gives them no memory ordering: neither do we.
#ifndef PREFILL_RUNTIME_EMULATION_CLOCKS_H
#define PREFILL_RUNTIME_EMULATION_CLOCKS_H

#include <cstdint>
#include <vector>

namespace prefill::rt::emulation {

inline constexpr int warpLanes = 32;
inline constexpr int maxWarps = 32;

using Stamp = uint32_t;

class Clocks {
public:
  /// Stamps grow from block to block, so that what earlier blocks left in the
  /// shadow memory is recognised. False: no room is left, start over with a
  /// cleared shadow.
  bool beginBlock(int numWarps);

  Stamp now(int warp) const { return clock[warp]; }
  /// The first stamp of this block.
  Stamp first() const { return start; }

  /// Whether what `other` did at `stamp` happened before what `thread` does
  /// now.
  bool ordered(int thread, int other, Stamp stamp) const {
    if (other == thread || stamp < start)
      return true;
    int warp = thread / warpLanes, otherWarp = other / warpLanes;
    return stamp <=
           (warp == otherWarp
                ? lanes[warp].seen[thread % warpLanes][other % warpLanes]
                : warps[warp][otherWarp]);
  }

  /// The lanes of `mask` met in bar.warp.sync.
  void syncLanes(int warp, uint32_t mask);
  /// The warps whose bits are set met at a barrier, with all their lanes.
  void syncWarps(uint32_t mask);

private:
  struct Lanes {
    Stamp seen[warpLanes][warpLanes];
  };
  Stamp start = 1, clock[maxWarps] = {};
  Stamp warps[maxWarps][maxWarps] = {};
  std::vector<Lanes> lanes;
};

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_CLOCKS_H
