#include "emulation/Report.h"

using namespace prefill::rt::emulation;

const char *prefill::rt::emulation::findingName(Finding finding) {
  switch (finding) {
  case Finding::globalOutOfBounds:
    return "global access out of bounds";
  case Finding::sharedOutOfBounds:
    return "shared access out of bounds";
  case Finding::misaligned:
    return "misaligned access";
  case Finding::readOnly:
    return "store to read-only memory";
  case Finding::unwrittenRead:
    return "read of unwritten shared memory";
  case Finding::copyNotAwaited:
    return "read of a copy that was not waited for";
  case Finding::writeDuringCopy:
    return "write onto bytes that are being copied";
  case Finding::race:
    return "shared-memory race";
  case Finding::divergentCollective:
    return "divergent collective";
  case Finding::memberMask:
    return "wrong member mask";
  case Finding::invalidOperand:
    return "invalid operand";
  case Finding::barrierMisses:
    return "barrier misses threads";
  case Finding::deadlock:
    return "deadlock";
  case Finding::openCopies:
    return "copies left open at exit";
  case Finding::globalRace:
    return "global race between blocks";
  }
  return "unknown";
}

std::string Report::message() const {
  return "kernel " + kernel + ", block " + std::to_string(block) + ", thread " +
         std::to_string(thread) + ", " + site + ": " + findingName(finding) +
         ": " + detail;
}
