#include "ModuleFileCase.h"

#include <gtest/gtest.h>

using namespace prefill;
using namespace prefill::test;

std::string prefill::test::loadError(const std::vector<uint8_t> &bytes,
                                     const char *deviceName) {
  prefill_device *device = nullptr;
  EXPECT_EQ(prefill_device_create(deviceName, 1, &device), PREFILL_OK)
      << prefill_last_error();
  prefill_module *module = nullptr;
  prefill_status status =
      prefill_module_load_memory(device, bytes.data(), bytes.size(), &module);
  std::string message = status == PREFILL_OK ? "" : prefill_last_error();
  prefill_module_destroy(module);
  prefill_device_destroy(device);
  return message;
}

std::string prefill::test::loadError(const module::ModuleT &file) {
  return loadError(serialize(file));
}

module::WeightT &prefill::test::addQuantized(module::ModuleT &file,
                                             uint32_t input) {
  module::QuantizeSourceT source;
  source.input = input;
  return addWeight(file, {testHidden, testHidden}, source, module::DType::i8);
}

module::WeightT &prefill::test::addScales(module::ModuleT &file,
                                          uint32_t input) {
  module::QuantizeScaleSourceT source;
  source.input = input;
  return addWeight(file, {testHidden}, source);
}

module::WeightT &prefill::test::addPack(module::ModuleT &file, uint32_t input,
                                        module::DType dtype) {
  module::PackSourceT source;
  source.input = input;
  source.panel_n = 32;
  source.k_pack = 4;
  source.group_n = testHidden;
  return addWeight(file, {1, testHidden / 4, 32, 4}, source, dtype);
}

module::ModuleT prefill::test::makeInt8Module() {
  module::ModuleT file = makeTestModule();
  addQuantized(file);
  addPack(file, firstAdded, module::DType::i8);
  addScales(file);
  module::ScheduleT &schedule = *file.plans[0]->schedules[0];
  auto buffer = std::make_unique<module::BufferT>();
  buffer->name = "integers";
  buffer->domain = module::RowDomain::tokens;
  buffer->row_bytes = testHidden;
  buffer->row_offset = 8 * testHidden;
  buffer->dtype = module::DType::i8;
  schedule.buffers.push_back(std::move(buffer));
  return file;
}
