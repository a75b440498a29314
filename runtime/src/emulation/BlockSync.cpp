// Where the threads of a block meet: barriers and the collectives of a warp.
#include "emulation/BlockRunner.h"
#include "emulation/WarpInstructions.h"

#include <algorithm>
#include <bit>

using namespace prefill::rt::emulation;

static std::string hex(uint32_t value) {
  constexpr const char *digits = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4)
    text += digits[value >> shift & 15];
  return text;
}

/// An aligned barrier: all lanes of a warp execute the same one. Without a
/// number of threads it takes all threads of the block, so a thread that left
/// the kernel is missed.
void BlockRunner::barrier(uint32_t site, uint32_t id, uint32_t count) {
  if (id >= numBarriers)
    fail(Finding::invalidOperand, site, -1, -1,
         "barrier " + std::to_string(id) + " (expected 0 to 15)");
  if (count % warpLanes != 0 || count > static_cast<uint32_t>(numThreads))
    fail(Finding::invalidOperand, site, -1, -1,
         "a barrier of " + std::to_string(count) +
             " threads (expected a multiple of 32, at most the block's " +
             std::to_string(numThreads) + ")");
  int warp = warpOf(current);
  Barrier &at = barriers[id];
  if (at.arrived > 0 && at.threads != count)
    fail(Finding::invalidOperand, site, -1, -1,
         "barrier " + std::to_string(id) + " for " + std::to_string(count) +
             " threads, while others wait there for " +
             std::to_string(at.threads) + " (0: all of the block)");
  if (at.lanes[warp] != 0 && at.site[warp] != site)
    fail(Finding::divergentCollective, site,
         warp * warpLanes + std::countr_zero(at.lanes[warp]),
         static_cast<int>(at.site[warp]),
         "lanes of the warp wait in the barrier at " +
             siteAt(at.site[warp]).name);
  at.threads = count;
  ++at.arrived;
  at.lanes[warp] |= 1u << lane();
  at.site[warp] = site;
  if (count == 0 && exitedThreads > 0)
    fail(Finding::barrierMisses, site, firstExited, -1,
         "thread " + std::to_string(firstExited) +
             " has left the kernel without it");
  uint32_t expected = count ? count : static_cast<uint32_t>(numThreads);
  if (at.arrived == expected)
    return releaseBarrier(at);
  wait(State::barrier, site);
}

void BlockRunner::releaseBarrier(Barrier &at) {
  uint32_t met = 0;
  for (int warp = 0; warp < numWarps; ++warp) {
    if (at.lanes[warp] == 0)
      continue;
    met |= 1u << warp;
    ++counters[at.site[warp]].requests;
    counters[at.site[warp]].threads += std::popcount(at.lanes[warp]);
    warps[warp].runnable |= at.lanes[warp];
    for (uint32_t rest = at.lanes[warp]; rest; rest &= rest - 1)
      threads[warp * warpLanes + std::countr_zero(rest)].state = State::running;
    log.flush(warp);
    at.lanes[warp] = 0;
  }
  at.arrived = at.threads = 0;
  clocks.syncWarps(met);
}

/// The current thread has exited: nobody may be waiting for it.
void BlockRunner::checkExitAtBarriers() {
  for (const Barrier &at : barriers) {
    if (at.arrived == 0 || at.threads != 0)
      continue;
    int gone = current;
    for (int warp = 0; warp < numWarps; ++warp)
      if (at.lanes[warp] != 0) {
        current = warp * warpLanes + std::countr_zero(at.lanes[warp]);
        fail(Finding::barrierMisses, at.site[warp], gone, -1,
             "thread " + std::to_string(gone) +
                 " has left the kernel without it");
      }
  }
}

BlockRunner::Rendezvous &BlockRunner::enter(uint32_t site, uint32_t mask) {
  Warp &warp = warps[warpOf(current)];
  if (warp.open.empty())
    warp.open.resize(warpLanes);
  uint32_t self = 1u << lane();
  if (!(mask & self))
    fail(Finding::memberMask, site, -1, -1,
         "mask " + hex(mask) + " does not name lane " + std::to_string(lane()));
  if (uint32_t absent = mask & ~warp.live)
    fail(Finding::memberMask, site,
         warpOf(current) * warpLanes + std::countr_zero(absent), -1,
         "mask " + hex(mask) +
             " names lanes that are not running: " + hex(absent));
  Rendezvous *unused = nullptr;
  for (Rendezvous &open : warp.open) {
    if (open.mask == 0) {
      unused = unused ? unused : &open;
      continue;
    }
    // Lanes that wait there are named here: neither meeting can complete.
    if (!(open.arrived & mask) && open.mask != mask)
      continue;
    int waiting = warpOf(current) * warpLanes + std::countr_zero(open.arrived);
    if (open.site != site)
      fail(Finding::divergentCollective, site, waiting,
           static_cast<int>(open.site),
           "lane " + std::to_string(waiting % warpLanes) +
               " of the warp waits in " + siteAt(open.site).op + " at " +
               siteAt(open.site).name);
    if (open.mask != mask)
      fail(Finding::memberMask, site, waiting, static_cast<int>(open.site),
           "mask " + hex(mask) + ", while lane " +
               std::to_string(waiting % warpLanes) + " has " + hex(open.mask));
    open.arrived |= self;
    return open;
  }
  unused->mask = mask;
  unused->site = site;
  unused->arrived = self;
  return *unused;
}

void BlockRunner::meet(Rendezvous &meeting) {
  if (meeting.arrived != meeting.mask)
    return wait(State::collective, meeting.site);
  complete(meeting);
  Warp &warp = warps[warpOf(current)];
  for (uint32_t rest = meeting.mask; rest; rest &= rest - 1)
    threads[warpOf(current) * warpLanes + std::countr_zero(rest)].state =
        State::running;
  warp.runnable |= meeting.mask;
  if (meeting.mask == warp.live)
    log.flush(warpOf(current));
  meeting.mask = 0;
}

void BlockRunner::complete(Rendezvous &meeting) {
  const Site &site = siteAt(meeting.site);
  SiteCounters &sum = counters[meeting.site];
  int base = warpOf(current) * warpLanes;
  if (site.kind != SiteKind::loadMatrix) { // counted with its accesses
    sum.requests += 1;
    sum.threads += std::popcount(meeting.mask);
  }
  auto forAll = [&](auto body) {
    for (uint32_t rest = meeting.mask; rest; rest &= rest - 1)
      body(std::countr_zero(rest));
  };
  switch (site.kind) {
  case SiteKind::syncWarp:
    clocks.syncLanes(warpOf(current), meeting.mask);
    break;
  case SiteKind::shuffle:
    completeShuffle(meeting);
    break;
  case SiteKind::vote: {
    uint32_t predicates = 0;
    forAll([&](int lane) { predicates |= (meeting.value[lane] & 1) << lane; });
    uint32_t result =
        vote(static_cast<VoteKind>(site.parameter), predicates, meeting.mask);
    forAll([&](int lane) { threads[base + lane].result[0] = result; });
    break;
  }
  case SiteKind::redux: {
    uint32_t result = reduce(static_cast<ReduxKind>(site.parameter),
                             meeting.value, meeting.mask);
    forAll([&](int lane) { threads[base + lane].result[0] = result; });
    break;
  }
  case SiteKind::loadMatrix:
    completeLoadMatrix(meeting);
    break;
  case SiteKind::mma:
    if (launch.countOnly)
      forAll([&](int lane) {
        std::copy_n(meeting.operands[lane] + 6, 4, meeting.results[lane]);
      });
    else
      multiplyMatrices(meeting.operands, meeting.results,
                       static_cast<MmaType>(site.parameter));
    break;
  default:
    break;
  }
}

void BlockRunner::completeShuffle(Rendezvous &meeting) {
  auto kind = static_cast<ShuffleKind>(siteAt(meeting.site).parameter);
  int base = warpOf(current) * warpLanes;
  for (uint32_t rest = meeting.mask; rest; rest &= rest - 1) {
    int lane = std::countr_zero(rest);
    bool inRange = false;
    int source = shuffleSource(kind, lane, meeting.offset[lane],
                               meeting.clamp[lane], inRange);
    if (!(meeting.mask >> source & 1)) {
      current = base + lane;
      fail(Finding::memberMask, meeting.site, base + source, -1,
           "reads lane " + std::to_string(source) + ", which the mask " +
               hex(meeting.mask) + " does not name");
    }
    threads[base + lane].shuffled =
        meeting.value[source] | static_cast<uint64_t>(inRange) << 32;
  }
}

/// Lane i names the row i of 16 bytes: it is the one that reads it.
void BlockRunner::completeLoadMatrix(Rendezvous &meeting) {
  const Site &site = siteAt(meeting.site);
  int matrices = site.parameter & 0xff, warp = warpOf(current);
  bool transposed = site.parameter >> 8;
  const uint8_t *rows[warpLanes] = {};
  int last = current;
  for (int lane = 0; lane < 8 * matrices; ++lane) {
    current = warp * warpLanes + lane;
    int64_t offset =
        sharedOffset(meeting.site, meeting.address[lane], site.bytes, 16);
    if (auto hazard = shared.read(current, static_cast<int>(meeting.site),
                                  offset, site.bytes))
      failShared(*hazard, meeting.site, "ldmatrix", site.bytes);
    rows[lane] = shared.data(offset);
    log.shared(warp, lane, meeting.site, meeting.address[lane], site.bytes);
  }
  current = last;
  if (launch.countOnly)
    for (uint32_t *result : meeting.results)
      std::fill_n(result, matrices, 0);
  else
    distributeMatrices(rows, matrices, transposed, meeting.results);
}
