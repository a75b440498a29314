#include "emulation/BlockRaces.h"

using namespace prefill::rt::emulation;

bool BlockRaces::access(uint64_t address, int bytes, int64_t block,
                        uint32_t site, bool store, Conflict &conflict) {
  constexpr uint64_t pageBytes = 4096;
  auto self = static_cast<uint32_t>(block + 1);
  for (uint64_t at = address; at < address + bytes; ++at) {
    std::vector<Byte> &page = shadow[at / pageBytes];
    if (page.empty())
      page.resize(pageBytes);
    Byte &byte = page[at % pageBytes];
    if (byte.writer != nobody && byte.writer != self) {
      conflict = {int64_t{byte.writer} - 1, byte.writeSite, true};
      return true;
    }
    if (store && byte.reader != nobody && byte.reader != self) {
      conflict = {byte.reader == several ? -1 : int64_t{byte.reader} - 1,
                  byte.readSite, false};
      return true;
    }
    if (store) {
      byte.writer = self;
      byte.writeSite = static_cast<uint16_t>(site);
    } else {
      byte.reader =
          byte.reader == nobody || byte.reader == self ? self : several;
      byte.readSite = static_cast<uint16_t>(site);
    }
  }
  return false;
}
