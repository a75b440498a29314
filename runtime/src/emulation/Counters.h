// What a launch asked of the memory and the execution units, by site.
#ifndef PREFILL_RUNTIME_EMULATION_COUNTERS_H
#define PREFILL_RUNTIME_EMULATION_COUNTERS_H

#include "emulation/Clocks.h"
#include "emulation/GlobalMemory.h"
#include "emulation/Program.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace prefill::rt::emulation {

/// Sums over a launch. A request is one instruction of one warp.
struct SiteCounters {
  uint64_t requests = 0;
  uint64_t threads = 0; ///< lanes that took part
  uint64_t globalBytes = 0;
  /// Distinct 32-byte sectors of each request, summed: times 32 it is the
  /// traffic without any cache.
  uint64_t sectors = 0;
  /// Distinct sectors of the launch: times 32 it is what must be moved.
  uint64_t distinctSectors = 0;
  uint64_t sharedBytes = 0;
  /// Passes over the 32 banks, and those of them that conflicts added.
  uint64_t sharedPasses = 0, bankConflicts = 0;

  void add(const SiteCounters &other);
};

/// Sites with the same name and kind, taken together.
struct NamedCounters {
  std::string name;
  SiteKind kind{};
  SiteCounters counters;
};

struct LaunchCounters {
  std::vector<NamedCounters> sites; ///< in the order of the program
  uint64_t globalLoadBytes = 0, globalStoreBytes = 0;
  uint64_t loadSectors = 0, storeSectors = 0;
  uint64_t distinctLoadSectors = 0, distinctStoreSectors = 0;
  uint64_t bankConflicts = 0;
  uint64_t matrixInstructions = 0, matrixLoads = 0, shuffles = 0;
  uint64_t barriers = 0; ///< barriers completed
  uint64_t switches = 0; ///< of fibers, in the emulator

  const SiteCounters *site(const std::string &name, SiteKind kind) const;
};

/// One bit for each sector of the registered memory.
class SectorSet {
public:
  explicit SectorSet(uint64_t sectors);
  void insert(uint64_t sector);
  uint64_t count() const;

private:
  struct Free {
    void operator()(void *memory) const;
  };
  uint64_t words;
  std::unique_ptr<std::atomic<uint64_t>, Free> bits; ///< untouched pages: none
};

/// The sectors that a launch touched; used by all host threads.
struct LaunchSectors {
  LaunchSectors(const Program &program, const Kernel &kernel,
                const GlobalMemory &memory);
  /// By the program's sites; nullptr: not global, or of another kernel.
  std::vector<std::unique_ptr<SectorSet>> ofSite;
  SectorSet loaded, stored;
};

/// Passes that the lanes' accesses of `bytes` each take: 32 banks of 4 bytes;
/// 8-byte accesses go by half warps, 16-byte ones by quarter warps. `ideal`
/// receives the number without conflicts. Lanes that read the same word are
/// served together.
int bankPasses(const uint64_t *addresses, uint32_t lanes, int bytes,
               int &ideal);

/// The accesses of one warp, put together to requests: the n-th execution of a
/// site by each lane since all lanes of the warp last met (in a collective of
/// all live lanes or a barrier) is one request. Where lanes diverge between two
/// meetings this may pair executions that the device would issue apart.
class RequestLog {
public:
  void begin(const Program &program, const Kernel &kernel,
             const GlobalMemory &memory, LaunchSectors *sectors,
             std::vector<SiteCounters> *counters, int numWarps);
  void global(int warp, int lane, uint32_t site, uint64_t address, int bytes) {
    note(globalSites, warp, lane, site, address, bytes);
  }
  void shared(int warp, int lane, uint32_t site, uint64_t address, int bytes) {
    note(sharedSites, warp, lane, site, address, bytes);
  }
  /// All lanes of the warp have met.
  void flush(int warp);

private:
  struct Request {
    uint32_t lanes = 0;
    int bytes = 0;
    uint64_t address[warpLanes];
  };
  struct Pending {
    uint32_t executions[warpLanes] = {};
    std::vector<Request> requests;
    size_t used = 0;
  };
  struct Warp {
    std::vector<Pending> sites; ///< the kernel's
    std::vector<uint32_t> touched;
  };
  void note(std::vector<Warp> &log, int warp, int lane, uint32_t site,
            uint64_t address, int bytes);
  void countGlobal(uint32_t site, const Request &request);
  void countShared(uint32_t site, const Request &request);

  const Program *program = nullptr;
  uint32_t firstSite = 0;
  const GlobalMemory *memory = nullptr;
  LaunchSectors *sectors = nullptr;
  std::vector<SiteCounters> *counters = nullptr;
  std::vector<Warp> globalSites, sharedSites;
};

/// `sectors`: nullptr where they were not counted.
LaunchCounters summarize(const Program &program,
                         const std::vector<SiteCounters> &sites,
                         const LaunchSectors *sectors);

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_COUNTERS_H
