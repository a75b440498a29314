// Random changes of a .pfm file: the checksum finds each, and what is sealed
// again is refused or loads, and never crashes.
#include "ModuleFileCase.h"

#include "core/KVCache.h"
#include "core/LoadedModule.h"
#include "core/ModuleFile.h"
#include "core/ResidentWeights.h"
#include "core/Session.h"
#include "prefill/module/ModuleChecksum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

using namespace prefill;
using namespace prefill::test;
using testing::StartsWith;

namespace {

/// The error of verifying `bytes` alone, or "". The copy is exact and aligned:
/// the sanitizers see every read.
std::string verifyError(const std::vector<uint8_t> &bytes) {
  std::vector<uint64_t> aligned((bytes.size() + 7) / 8);
  std::memcpy(aligned.data(), bytes.data(), bytes.size());
  auto result = rt::verifyModule(
      reinterpret_cast<const std::byte *>(aligned.data()), bytes.size());
  return result ? "" : result.error().message;
}

TEST(ModuleFileHostile, TheChecksumSeesEveryChange) {
  std::vector<uint8_t> valid = serialize(makeTestModule());
  ASSERT_EQ(verifyError(valid), "");
  std::mt19937 random(5);
  std::vector<uint8_t> bytes = valid;
  int found = 0; // by nothing but the checksum
  for (int round = 0; round < 3000; ++round) {
    // Every second change lies in the tables, which are a small part.
    size_t range = round % 2 ? bytes.size() : 4096;
    size_t at =
        round % 4 == 0 ? bytes.size() - 1 - random() % range : random() % range;
    uint8_t change = 1 << random() % 8;
    bytes[at] ^= change;
    std::string error = verifyError(bytes);
    EXPECT_THAT(error, StartsWith("invalid module: ")) << at;
    found += error.find("the file is damaged: checksum 0x") != error.npos;
    bytes[at] ^= change;
  }
  EXPECT_GT(found, 1500);
  bytes.push_back(0);
  EXPECT_THAT(verifyError(bytes),
              testing::ContainsRegex("the file is damaged: checksum "
                                     "0x[0-9a-f]{16}, expected "
                                     "0x[0-9a-f]{16}$"));
}

TEST(ModuleFileHostile, OnlyModulesCanBeSealed) {
  std::vector<uint8_t> bytes = serialize(makeTestModule());
  EXPECT_TRUE(module::sealModule(bytes.data(), bytes.size()));
  EXPECT_EQ(verifyError(bytes), "");
  EXPECT_FALSE(module::sealModule(bytes.data(), bytes.size() / 2));
  module::ModuleT file = makeTestModule();
  file.checksum = 0;
  bytes = serialize(file);
  EXPECT_FALSE(module::sealModule(bytes.data(), bytes.size()));
}

// Byte flips in the tables, sealed again so that the checks behind the checksum
// are what is tested: refused or, where the flip means nothing, loaded. What
// loads gets weights and a cache as well, where they fit.
TEST(ModuleFileHostile, SurvivesSealedByteFlips) {
  // Not the object: only the checksum can tell damaged code.
  module::ModuleT file = makeInt8Module();
  std::vector<uint8_t> valid = serialize(file);
  auto object = std::search(valid.begin(), valid.end(),
                            file.plans[0]->code[0]->object.begin(),
                            file.plans[0]->code[0]->object.end());
  ASSERT_NE(object, valid.end());
  size_t objectBegin = object - valid.begin();
  size_t objectEnd = objectBegin + file.plans[0]->code[0]->object.size();

  auto device = rt::Device::create("cpu", 1);
  ASSERT_TRUE(device);
  std::mt19937 random(3);
  int sealed = 0, refused = 0, loaded = 0;
  std::vector<uint8_t> bytes;
  for (int round = 0; round < 6000; ++round) {
    bytes = valid;
    for (int flips = 1 + random() % 3; flips > 0; --flips) {
      size_t at = random() % (bytes.size() - (objectEnd - objectBegin));
      if (at >= objectBegin)
        at += objectEnd - objectBegin;
      bytes[at] ^= 1 << random() % 8;
    }
    // What the FlatBuffers verifier refuses cannot be sealed.
    sealed += module::sealModule(bytes.data(), bytes.size());
    if (std::string error = verifyError(bytes); !error.empty()) {
      EXPECT_THAT(error, StartsWith("invalid module: "));
      EXPECT_EQ(error.find('\n'), std::string::npos);
      ++refused;
      continue;
    }
    ++loaded;
    // A flip of its length or place changes the object after all, and the
    // dynamic linker trusts what it is given.
    const std::vector<uint8_t> &original = file.plans[0]->code[0]->object;
    bool sameCode = true;
    for (const module::Code *code :
         *module::GetModule(bytes.data())->plans()->Get(0)->code())
      sameCode &= std::equal(code->object()->begin(), code->object()->end(),
                             original.begin(), original.end());
    if (!sameCode)
      continue;
    // Every table is walked once more by what reads them later.
    auto whole =
        rt::LoadedModule::loadMemory(**device, bytes.data(), bytes.size());
    if (!whole)
      continue;
    uint64_t elements = 0; // a flip can make a valid model of many GB
    for (const module::Weight *weight : *(*whole)->plan().weights()) {
      uint64_t own = 1;
      for (int64_t extent : *weight->shape())
        own *= extent;
      elements += own;
    }
    if (elements > 1 << 20)
      continue;
    auto weights =
        rt::ResidentWeights::load(**whole, rt::RandomSource(1), nullptr);
    auto cache = rt::KVCache::create(**whole, 1, 1);
    if (!weights || !cache)
      continue;
    auto session = rt::Session::create(**whole, **weights, **cache);
    EXPECT_TRUE(session);
  }
  EXPECT_GT(sealed, 2000);
  EXPECT_GT(refused, 2000);
  EXPECT_GT(loaded, 100);
}

} // namespace
