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
    if (launch.countOnly)
      checkPassed(warp, static_cast<int>(at.site[warp]));
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
  if (meeting.mask == warp.live) {
    log.flush(warpOf(current));
    if (launch.countOnly)
      checkPassed(warpOf(current), static_cast<int>(meeting.site));
  }
  meeting.mask = 0;
}

void BlockRunner::pass(uint32_t site) {
  Warp &warp = warps[warpOf(current)];
  // A lane that has left the kernel may have passed before.
  if (uint32_t absent = ~(warp.live | warp.exited))
    fail(Finding::memberMask, site,
         warpOf(current) * warpLanes + std::countr_zero(absent), -1,
         "mask " + hex(~0u) + " names lanes that never ran: " + hex(absent));
  uint64_t &hash = warp.passed[lane()];
  hash = (hash + site + 1) * 0x9e3779b97f4a7c15;
  warp.lastPassed[lane()] = site;
}

/// The lanes of a warp meet, or (-1) all have left the kernel.
void BlockRunner::checkPassed(int warp, int meetingSite) {
  Warp &at = warps[warp];
  int lanes = std::min(warpLanes, numThreads - warp * warpLanes);
  for (int lane = 1; lane < lanes; ++lane)
    if (at.passed[lane] != at.passed[0]) {
      int passer = at.passed[lane] ? lane : 0, other = lane - passer;
      current = warp * warpLanes + passer;
      fail(Finding::divergentCollective, at.lastPassed[passer],
           warp * warpLanes + other, meetingSite,
           "lane " + std::to_string(other) +
               " of the warp passed different matrix instructions since they "
               "last met");
    }
  std::fill_n(at.passed, warpLanes, 0);
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
const uint8_t *BlockRunner::readRow(uint32_t site, uint64_t address) {
  int bytes = siteAt(site).bytes;
  int64_t offset = sharedOffset(site, address, bytes, 16);
  if (auto hazard = shared.read(current, static_cast<int>(site), offset, bytes))
    failShared(*hazard, site, "ldmatrix", bytes);
  log.shared(warpOf(current), lane(), site, address, bytes);
  return shared.data(offset);
}

void BlockRunner::completeLoadMatrix(Rendezvous &meeting) {
  const Site &site = siteAt(meeting.site);
  int matrices = site.parameter & 0xff, warp = warpOf(current);
  bool transposed = site.parameter >> 8;
  const uint8_t *rows[warpLanes] = {};
  int last = current;
  for (int lane = 0; lane < 8 * matrices; ++lane) {
    current = warp * warpLanes + lane;
    rows[lane] = readRow(meeting.site, meeting.address[lane]);
  }
  current = last;
  distributeMatrices(rows, matrices, transposed, meeting.results);
}

void BlockRunner::passLoadMatrix(uint32_t site, uint64_t address,
                                 uint32_t *result) {
  int matrices = siteAt(site).parameter & 0xff;
  pass(site);
  if (lane() < 8 * matrices)
    readRow(site, address);
  std::fill_n(result, matrices, 0);
}
