// Blocks of one launch that touch the same bytes of global memory.
#ifndef PREFILL_RUNTIME_EMULATION_BLOCKRACES_H
#define PREFILL_RUNTIME_EMULATION_BLOCKRACES_H

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace prefill::rt::emulation {

/// For each byte the block that wrote it and the blocks that read it (one, or
/// "several"). Not thread-safe: blocks run one after another when this is on.
class BlockRaces {
public:
  struct Conflict {
    int64_t block; ///< the earlier one
    uint32_t site;
    bool wrote;
  };
  /// Enters an access; true when it conflicts with one of another block.
  bool access(uint64_t address, int bytes, int64_t block, uint32_t site,
              bool store, Conflict &conflict);

private:
  static constexpr uint32_t nobody = 0, several = UINT32_MAX;
  struct Byte {
    uint32_t writer = nobody, reader = nobody; ///< block + 1
    uint16_t writeSite = 0, readSite = 0;
  };
  std::unordered_map<uint64_t, std::vector<Byte>> shadow; ///< by page
};

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_BLOCKRACES_H
