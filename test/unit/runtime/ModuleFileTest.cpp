// Malformed .pfm files: refused with a message that names the place, never a
// crash.
#include "ModuleFileCase.h"

#include "core/LoadedModule.h"
#include "core/ModuleFile.h"
#include "core/ScheduleChoice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace prefill;
using namespace prefill::test;
using testing::HasSubstr;

namespace {

TEST(ModuleFile, LoadsFromUnalignedMemory) {
  std::vector<uint8_t> bytes = serialize(makeTestModule());
  bytes.insert(bytes.begin(), 0);
  prefill_device *device = nullptr;
  ASSERT_EQ(prefill_device_create("cpu", 1, &device), PREFILL_OK);
  prefill_module *module = nullptr;
  ASSERT_EQ(prefill_module_load_memory(device, bytes.data() + 1,
                                       bytes.size() - 1, &module),
            PREFILL_OK)
      << prefill_last_error();
  prefill_module_info info;
  ASSERT_EQ(prefill_module_get_info(module, &info), PREFILL_OK);
  EXPECT_STREQ(info.model_type, "llama");
  EXPECT_STREQ(info.dtype, "f32");
  EXPECT_STREQ(info.kv_layout, "contiguous");
  EXPECT_EQ(info.head_dim, testHeadDim);
  EXPECT_STREQ(prefill_module_variant(module), "avx2");
  prefill_launch_info launch;
  EXPECT_EQ(prefill_module_get_launch(module, 8, &launch),
            PREFILL_INVALID_ARGUMENT);
  prefill_module_destroy(module);
  prefill_device_destroy(device);
}

TEST(ModuleFile, PadsRowsToBuckets) {
  auto device = rt::Device::create("cpu", 1);
  ASSERT_TRUE(device);
  std::vector<uint8_t> bytes = serialize(makeTestModule());
  auto loaded =
      rt::LoadedModule::loadMemory(**device, bytes.data(), bytes.size());
  ASSERT_TRUE(loaded);
  for (auto [rows, padded] : {std::pair{1, 1},
                              {2, 4},
                              {4, 4},
                              {5, 16},
                              {16, 16},
                              {17, 32},
                              {32, 32},
                              {33, 48}})
    EXPECT_EQ(rt::padRows(rt::lastSchedule((*loaded)->plan()), rows), padded)
        << rows;
}

TEST(ModuleFileHostile, NotAModule) {
  EXPECT_THAT(loadError(std::vector<uint8_t>{1}),
              HasSubstr("not a compiled module: the file identifier PFM1"));
  EXPECT_THAT(loadError(std::vector<uint8_t>(100, 0)),
              HasSubstr("not a compiled module"));
}

TEST(ModuleFileHostile, Truncated) {
  std::vector<uint8_t> bytes = serialize(makeTestModule());
  for (size_t size : {size_t(8), size_t(12), size_t(100), bytes.size() / 2,
                      bytes.size() - 100})
    EXPECT_THAT(
        loadError(std::vector<uint8_t>(bytes.begin(), bytes.begin() + size)),
        HasSubstr("truncated or damaged"))
        << size;
}

TEST(ModuleFileHostile, OlderFormatsAreNamed) {
  // A table without what the format has had since.
  flatbuffers::FlatBufferBuilder builder;
  auto start = builder.StartTable();
  builder.AddElement<int32_t>(module::Module::VT_FORMAT_VERSION, 3, 0);
  builder.Finish(flatbuffers::Offset<module::Module>(builder.EndTable(start)),
                 module::ModuleIdentifier());
  const uint8_t *bytes = builder.GetBufferPointer();
  EXPECT_THAT(loadError({bytes, bytes + builder.GetSize()}),
              HasSubstr("format version 3, this runtime reads version 4"));
}

TEST(ModuleFile, WeightsAndBuffersMayBeInt8) {
  EXPECT_EQ(loadError(makeInt8Module()), "");
}

TEST(ModuleFileHostile, DeepWeightProgram) {
  module::ModuleT file = makeTestModule();
  auto wrap = [&](uint32_t input) {
    auto weight = std::make_unique<module::WeightT>();
    weight->name = "w" + std::to_string(file.plans[0]->weights.size());
    weight->shape = {testHidden};
    module::ConcatSourceT concat;
    concat.inputs = {input};
    weight->source.Set(std::move(concat));
    file.plans[0]->weights.push_back(std::move(weight));
    return static_cast<uint32_t>(file.plans[0]->weights.size() - 1);
  };
  uint32_t last = 3;
  for (int i = 0; i < 64; ++i)
    last = wrap(last);
  EXPECT_EQ(loadError(file), "");
  wrap(last);
  EXPECT_THAT(loadError(file),
              HasSubstr("more than 64 transforms on top of each other"));
}

TEST(ModuleFileHostile, ForcedVariantMustExist) {
  TestModelOptions options;
  options.variant = "avx512";
  EXPECT_THAT(loadError(serialize(makeTestModule(options)), "cpu:avx2"),
              HasSubstr("the module has no code for cpu:avx2, it has "
                        "'cpu:avx512'"));
}

TEST(ModuleFileHostile, UnknownVariantsAreForLaterRuntimes) {
  module::ModuleT file = makeTestModule();
  auto later = std::make_unique<module::CodeT>();
  later->variant = "avx10";
  later->object = {1, 2, 3};
  file.plans[0]->code.insert(file.plans[0]->code.begin(), std::move(later));
  EXPECT_EQ(loadError(file), "");
}

/// Two modules at a time, loaded and unloaded in turn: neither gets the other's
/// code.
TEST(ModuleFile, ModulesDoNotMixUpTheirCode) {
  std::vector<int32_t> tokens = {1, 2, 3};
  TestModelOptions otherOptions;
  otherOptions.layout = module::KVLayout::paged_nhd;
  for (int round = 0; round < 3; ++round) {
    TestRun first;
    {
      TestRun second(otherOptions);
      EXPECT_EQ(second.prefill(tokens), first.prefill(tokens));
    }
    TestRun third(otherOptions);
    EXPECT_EQ(third.prefill(tokens), TestRun().prefill(tokens));
  }
}

} // namespace
