// Plans for CUDA in module files: what the verifier demands of them.
#include "TestModel.h"

#include "core/ModuleFile.h"
#include "core/PlanChoice.h"
#include "prefill/module/ModuleChecksum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

using namespace prefill;
using namespace prefill::test;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

/// The tables of the test model as if its kernels were CUDA's.
module::ModuleT makeCudaModule() {
  module::ModuleT file = makeTestModule();
  module::PlanT &plan = *file.plans[0];
  plan.target = "cuda";
  plan.chip = "sm_80";
  for (auto &kernel : plan.kernels) {
    kernel->scratch_bytes = 0;
    kernel->cuda = std::make_unique<module::CudaResourcesT>();
    kernel->cuda->block_threads = 128;
    kernel->cuda->shared_bytes = 49152;
    kernel->cuda->registers = 80;
    kernel->cuda->occupancy = 0.5f;
  }
  plan.code.clear();
  for (module::CodeFormat format :
       {module::CodeFormat::cubin, module::CodeFormat::ptx,
        module::CodeFormat::emulation}) {
    auto code = std::make_unique<module::CodeT>();
    code->format = format;
    code->variant = "sm_80";
    code->object = {1, 2, 3};
    plan.code.push_back(std::move(code));
  }
  return file;
}

/// The error of verifying the tables, or "".
std::string verifyError(const module::ModuleT &file) {
  std::vector<uint8_t> bytes = serialize(file);
  std::vector<uint64_t> aligned((bytes.size() + 7) / 8);
  std::memcpy(aligned.data(), bytes.data(), bytes.size());
  auto result = rt::verifyModule(
      reinterpret_cast<const std::byte *>(aligned.data()), bytes.size());
  return result ? "" : result.error().message;
}

struct Damage {
  const char *name;
  void (*apply)(module::PlanT &);
  const char *message;
};

const Damage damages[] = {
    {"NoChip", [](auto &p) { p.chip.clear(); },
     "plan 0 for 'cuda': chip is '', expected sm_XX"},
    {"NoChipName", [](auto &p) { p.chip = "ampere"; }, "chip is 'ampere'"},
    {"ChipWithSpace", [](auto &p) { p.chip = "sm_80 "; }, "chip is 'sm_80 '"},
    {"CodeOfAnotherChip", [](auto &p) { p.code[1]->variant = "sm_90"; },
     "code 'cuda':'sm_90' (ptx) is in the plan for 'sm_80'"},
    {"ElfCode", [](auto &p) { p.code[0]->format = module::CodeFormat::elf; },
     "code 'cuda':'sm_80' (elf): the format is not one for 'cuda'"},
    {"CodeTwice",
     [](auto &p) { p.code[2]->format = module::CodeFormat::cubin; },
     "code 'cuda':'sm_80' (cubin) appears twice"},
    {"CodeEmpty", [](auto &p) { p.code[2]->object.clear(); },
     "(emulation) is empty"},
    {"TooMuchCode",
     [](auto &p) {
       while (p.code.size() <= 64)
         p.code.push_back(std::make_unique<module::CodeT>(*p.code[0]));
     },
     "the plan for 'cuda' has 65 code objects, expected at most 64"},
    {"NoResources", [](auto &p) { p.kernels[1]->cuda.reset(); },
     "kernel 1 'tk_append_64' lacks CUDA resources, but the plan is for "
     "'cuda'"},
    {"NoThreads", [](auto &p) { p.kernels[1]->cuda->block_threads = 0; },
     "kernel 1 'tk_append_64': block_threads is 0, expected 1 to 1024"},
    {"Threads", [](auto &p) { p.kernels[1]->cuda->block_threads = 1025; },
     "block_threads is 1025, expected 1 to 1024"},
    {"SharedBytes", [](auto &p) { p.kernels[1]->cuda->shared_bytes = 232449; },
     "shared_bytes is 232449, expected 0 to 232448"},
    {"SharedBytesNegative",
     [](auto &p) { p.kernels[1]->cuda->shared_bytes = -1; },
     "shared_bytes is -1"},
    {"Multiprocessors", [](auto &p) { p.multiprocessors = -1; },
     "plan 0 for 'cuda': multiprocessors is -1, expected 0 to 4096"},
    {"ResidentBlocks",
     [](auto &p) { p.kernels[1]->cuda->resident_blocks = 65; },
     "resident_blocks is 65, expected 0 to 64"},
    {"Registers", [](auto &p) { p.kernels[1]->cuda->registers = 256; },
     "registers is 256, expected 0 to 255"},
    {"Spills", [](auto &p) { p.kernels[1]->cuda->spill_bytes = -4; },
     "spill_bytes is -4"},
    {"Occupancy", [](auto &p) { p.kernels[1]->cuda->occupancy = 1.5f; },
     "occupancy is 1.5"},
    {"OccupancyNaN", [](auto &p) { p.kernels[1]->cuda->occupancy = NAN; },
     "occupancy is "},
    {"LogitsPadded",
     [](auto &p) { p.schedules[0]->buffers[2]->row_bytes += 64; },
     "logits buffer 2 'logits': expected rows of 13 f32 (vocab_size)"},
    {"Scratch", [](auto &p) { p.kernels[1]->scratch_bytes = 64; },
     "scratch_bytes is 64, expected 0 for cuda"},
};

class CudaPlanDamage : public testing::TestWithParam<Damage> {};
INSTANTIATE_TEST_SUITE_P(Tables, CudaPlanDamage, testing::ValuesIn(damages),
                         [](const auto &info) { return info.param.name; });

TEST_P(CudaPlanDamage, IsNamed) {
  module::ModuleT file = makeCudaModule();
  GetParam().apply(*file.plans[0]);
  EXPECT_THAT(verifyError(file), HasSubstr(GetParam().message));
}

TEST(CudaPlan, StandsBesideOthers) {
  module::ModuleT file = makeCudaModule();
  EXPECT_EQ(verifyError(file), "");
  auto other = std::make_unique<module::PlanT>(*file.plans[0]);
  other->chip = "sm_90";
  for (auto &code : other->code)
    code->variant = "sm_90";
  file.plans.push_back(std::move(other));
  module::ModuleT cpu = makeTestModule();
  file.plans.push_back(std::move(cpu.plans[0]));
  EXPECT_EQ(verifyError(file), "");

  std::vector<uint8_t> bytes = serialize(file);
  const module::Module &table = *module::GetModule(bytes.data());
  EXPECT_EQ(rt::listCode(table),
            "cuda-emu:sm_80, cuda:sm_80 (cubin, ptx), cuda-emu:sm_90, "
            "cuda:sm_90 (cubin, ptx), cpu:avx2");
  EXPECT_EQ(rt::findPlan(table, "cuda", "sm_90"), table.plans()->Get(1));
  EXPECT_EQ(rt::findPlan(table, "cpu", ""), table.plans()->Get(2));
  EXPECT_EQ(rt::findPlan(table, "cuda", "sm_86"), nullptr);
  EXPECT_EQ(
      rt::findCode(*table.plans()->Get(0), module::CodeFormat::elf, "sm_80"),
      nullptr);

  // The same chip twice.
  file.plans[1]->chip = "sm_80";
  for (auto &code : file.plans[1]->code)
    code->variant = "sm_80";
  EXPECT_THAT(verifyError(file),
              HasSubstr("plans 0 and 1 are both for 'cuda':sm_80"));
}

// Byte flips in the tables, sealed again: refused with one line, or harmless.
TEST(CudaPlan, SurvivesSealedByteFlips) {
  std::vector<uint8_t> valid = serialize(makeCudaModule());
  std::mt19937 random(11);
  int refused = 0, accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<uint64_t> aligned((valid.size() + 7) / 8);
    auto *bytes = reinterpret_cast<uint8_t *>(aligned.data());
    std::memcpy(bytes, valid.data(), valid.size());
    for (int flips = 1 + random() % 3; flips > 0; --flips)
      bytes[random() % valid.size()] ^= 1 << random() % 8;
    // What cannot be sealed is damaged, and refused as such.
    static_cast<void>(module::sealModule(bytes, valid.size()));
    auto result = rt::verifyModule(reinterpret_cast<const std::byte *>(bytes),
                                   valid.size());
    ++(result ? accepted : refused);
    if (result) {
      EXPECT_FALSE(rt::listCode(**result).empty()); // walks plans and code
      continue;
    }
    EXPECT_THAT(result.error().message, StartsWith("invalid module: "));
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 100);
}

TEST(CudaPlan, HasNoPagesOfACpu) {
  module::ModuleT file = makeCudaModule();
  *file.kv_cache = module::KVCacheSpec(module::KVLayout::paged_vnni,
                                       module::DType::f32, 2, 8, 8, 32);
  EXPECT_THAT(verifyError(file),
              HasSubstr("plan 0 for 'cuda': kv_cache layout is paged_vnni"));
}

TEST(CudaPlan, AModuleForAnotherDeviceSaysWhatItHas) {
  std::vector<uint8_t> bytes = serialize(makeCudaModule());
  prefill_device *device = nullptr;
  ASSERT_EQ(prefill_device_create("cpu", 1, &device), PREFILL_OK);
  prefill_module *module = nullptr;
  EXPECT_EQ(
      prefill_module_load_memory(device, bytes.data(), bytes.size(), &module),
      PREFILL_UNSUPPORTED);
  EXPECT_THAT(prefill_last_error(),
              HasSubstr("no code for this CPU: it has 'cuda-emu:sm_80, "
                        "cuda:sm_80 (cubin, ptx)'"));
  prefill_device_destroy(device);
}

} // namespace
