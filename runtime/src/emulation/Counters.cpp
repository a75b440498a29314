#include "emulation/Counters.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

using namespace prefill::rt::emulation;

void SiteCounters::add(const SiteCounters &other) {
  requests += other.requests;
  threads += other.threads;
  globalBytes += other.globalBytes;
  sectors += other.sectors;
  distinctSectors += other.distinctSectors;
  sharedBytes += other.sharedBytes;
  sharedPasses += other.sharedPasses;
  bankConflicts += other.bankConflicts;
}

const SiteCounters *LaunchCounters::site(const std::string &name,
                                         SiteKind kind) const {
  for (const NamedCounters &entry : sites)
    if (entry.name == name && entry.kind == kind)
      return &entry.counters;
  return nullptr;
}

void SectorSet::Free::operator()(void *memory) const { std::free(memory); }

SectorSet::SectorSet(uint64_t sectors) : words(sectors / 64 + 1) {
  void *memory = std::calloc(words, sizeof(uint64_t));
  if (!memory)
    throw std::bad_alloc();
  bits.reset(static_cast<std::atomic<uint64_t> *>(memory));
}

void SectorSet::insert(uint64_t sector) {
  std::atomic<uint64_t> &word = bits.get()[sector / 64];
  uint64_t bit = uint64_t{1} << (sector % 64);
  if (!(word.load(std::memory_order_relaxed) & bit))
    word.fetch_or(bit, std::memory_order_relaxed);
}

uint64_t SectorSet::count() const {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < words; ++i)
    sum += static_cast<uint64_t>(
        std::popcount(bits.get()[i].load(std::memory_order_relaxed)));
  return sum;
}

static bool touchesGlobal(const Site &site) {
  if (site.kind == SiteKind::load || site.kind == SiteKind::store)
    return site.space != AddressSpace::shared;
  return site.kind == SiteKind::asyncCopy;
}

LaunchSectors::LaunchSectors(const Program &program, const Kernel &kernel,
                             const GlobalMemory &memory)
    : ofSite(program.sites.size()), loaded(memory.sectors()),
      stored(memory.sectors()) {
  for (int site = kernel.firstSite; site < kernel.firstSite + kernel.numSites;
       ++site)
    if (touchesGlobal(program.sites[site]))
      ofSite[site] = std::make_unique<SectorSet>(memory.sectors());
}

int prefill::rt::emulation::bankPasses(const uint64_t *addresses,
                                       uint32_t lanes, int bytes, int &ideal) {
  constexpr int banks = 32, bankBytes = 4;
  int group = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  int passes = 0;
  ideal = 0;
  for (int first = 0; first < warpLanes; first += group) {
    uint64_t words[banks][warpLanes]; // distinct words of each bank
    int count[banks] = {};
    int most = 0;
    for (int lane = first; lane < first + group; ++lane) {
      if (!(lanes >> lane & 1))
        continue;
      uint64_t begin = addresses[lane] / bankBytes;
      uint64_t end = (addresses[lane] + bytes - 1) / bankBytes;
      for (uint64_t word = begin; word <= end; ++word) {
        int bank = static_cast<int>(word % banks);
        uint64_t *known = words[bank];
        if (std::find(known, known + count[bank], word) != known + count[bank])
          continue;
        known[count[bank]++] = word;
        most = std::max(most, count[bank]);
      }
    }
    passes += most;
    ideal += most > 0;
  }
  return passes;
}

void RequestLog::begin(const Program &newProgram, const Kernel &kernel,
                       const GlobalMemory &newMemory, LaunchSectors *newSectors,
                       std::vector<SiteCounters> *newCounters, int numWarps) {
  program = &newProgram;
  firstSite = static_cast<uint32_t>(kernel.firstSite);
  memory = &newMemory;
  sectors = newSectors;
  counters = newCounters;
  for (auto *log : {&globalSites, &sharedSites}) {
    log->clear();
    log->resize(numWarps);
    for (Warp &warp : *log)
      warp.sites.resize(kernel.numSites);
  }
}

void RequestLog::note(std::vector<Warp> &log, int warp, int lane, uint32_t site,
                      uint64_t address, int bytes) {
  Pending &pending = log[warp].sites[site - firstSite];
  if (pending.used == 0)
    log[warp].touched.push_back(site);
  size_t index = pending.executions[lane]++;
  if (index >= pending.used) {
    if (index >= pending.requests.size())
      pending.requests.emplace_back();
    pending.requests[index].lanes = 0;
    pending.used = index + 1;
  }
  Request &request = pending.requests[index];
  request.lanes |= 1u << lane;
  request.bytes = bytes;
  request.address[lane] = address;
}

void RequestLog::flush(int warp) {
  auto flushLog = [&](std::vector<Warp> &log, auto count) {
    for (uint32_t site : log[warp].touched) {
      Pending &pending = log[warp].sites[site - firstSite];
      for (size_t i = 0; i < pending.used; ++i)
        count(site, pending.requests[i]);
      pending.used = 0;
      std::fill(pending.executions, pending.executions + warpLanes, 0);
    }
    log[warp].touched.clear();
  };
  flushLog(globalSites, [this](uint32_t site, const Request &request) {
    countGlobal(site, request);
  });
  flushLog(sharedSites, [this](uint32_t site, const Request &request) {
    countShared(site, request);
  });
}

void RequestLog::countGlobal(uint32_t site, const Request &request) {
  uint64_t touched[2 * warpLanes];
  int count = 0, lanes = 0;
  const Allocation *last = nullptr;
  for (uint32_t rest = request.lanes; rest; rest &= rest - 1) {
    uint64_t address = request.address[__builtin_ctz(rest)];
    ++lanes;
    if (!last || address < last->begin || address >= last->begin + last->size)
      last = memory->find(address, 1);
    uint64_t origin = last->begin / sectorBytes;
    uint64_t first = address / sectorBytes;
    uint64_t end = (address + request.bytes - 1) / sectorBytes;
    for (uint64_t sector = first; sector <= end; ++sector) {
      uint64_t number = last->firstSector + sector - origin;
      if (count == 0 || touched[count - 1] != number)
        touched[count++] = number;
    }
  }
  std::sort(touched, touched + count);
  count = static_cast<int>(std::unique(touched, touched + count) - touched);
  SiteCounters &sum = (*counters)[site];
  bool copy = program->sites[site].kind == SiteKind::asyncCopy;
  if (!copy) { // a copy's shared side counts those
    sum.requests += 1;
    sum.threads += lanes;
  }
  sum.globalBytes += static_cast<uint64_t>(lanes) * request.bytes;
  sum.sectors += count;
  if (!sectors)
    return;
  bool store = program->sites[site].kind == SiteKind::store;
  SectorSet &all = store ? sectors->stored : sectors->loaded;
  for (int i = 0; i < count; ++i) {
    sectors->ofSite[site]->insert(touched[i]);
    all.insert(touched[i]);
  }
}

void RequestLog::countShared(uint32_t site, const Request &request) {
  SiteCounters &sum = (*counters)[site];
  int ideal = 0;
  int passes = bankPasses(request.address, request.lanes, request.bytes, ideal);
  int lanes = std::popcount(request.lanes);
  sum.requests += 1;
  sum.threads += lanes;
  sum.sharedBytes += static_cast<uint64_t>(lanes) * request.bytes;
  sum.sharedPasses += passes;
  sum.bankConflicts += passes - ideal;
}

LaunchCounters
prefill::rt::emulation::summarize(const Program &program,
                                  const std::vector<SiteCounters> &sites,
                                  const LaunchSectors *sectors) {
  LaunchCounters result;
  for (size_t i = 0; i < sites.size(); ++i) {
    const Site &site = program.sites[i];
    SiteCounters counters = sites[i];
    if (counters.requests == 0)
      continue;
    if (sectors && sectors->ofSite[i])
      counters.distinctSectors = sectors->ofSite[i]->count();
    auto same = [&](const NamedCounters &entry) {
      return entry.name == site.name && entry.kind == site.kind;
    };
    auto found = std::find_if(result.sites.begin(), result.sites.end(), same);
    if (found == result.sites.end())
      found = result.sites.insert(found, {site.name, site.kind, {}});
    found->counters.add(counters);

    bool store = site.kind == SiteKind::store;
    (store ? result.globalStoreBytes : result.globalLoadBytes) +=
        counters.globalBytes;
    (store ? result.storeSectors : result.loadSectors) += counters.sectors;
    result.bankConflicts += counters.bankConflicts;
    switch (site.kind) {
    case SiteKind::mma:
      result.matrixInstructions += counters.requests;
      break;
    case SiteKind::loadMatrix:
      result.matrixLoads += counters.requests;
      break;
    case SiteKind::shuffle:
      result.shuffles += counters.requests;
      break;
    case SiteKind::barrier:
      result.barriers += counters.requests;
      break;
    default:
      break;
    }
  }
  if (sectors) {
    result.distinctLoadSectors = sectors->loaded.count();
    result.distinctStoreSectors = sectors->stored.count();
  }
  return result;
}
