#include "core/PlanChoice.h"

using namespace prefill;
using namespace prefill::rt;

const module::Plan *prefill::rt::findPlan(const module::Module &file,
                                          std::string_view target,
                                          std::string_view chip) {
  for (const module::Plan *plan : *file.plans())
    if (plan->target()->string_view() == target &&
        (plan->chip() ? plan->chip()->string_view() : "") == chip)
      return plan;
  return nullptr;
}

const module::Code *prefill::rt::findCode(const module::Plan &plan,
                                          module::CodeFormat format,
                                          std::string_view variant) {
  for (const module::Code *code : *plan.code())
    if (code->format() == format && code->variant()->string_view() == variant)
      return code;
  return nullptr;
}

std::string prefill::rt::listCode(const module::Module &file) {
  std::string list;
  auto add = [&](const std::string &device) {
    list += (list.empty() ? "" : ", ") + device;
  };
  for (const module::Plan *plan : *file.plans()) {
    std::string gpuFormats;
    for (const module::Code *code : *plan->code()) {
      if (code->format() == module::CodeFormat::elf)
        add(plan->target()->str() + ":" + code->variant()->str());
      else if (code->format() == module::CodeFormat::emulation)
        add("cuda-emu:" + code->variant()->str());
      else
        gpuFormats += std::string(gpuFormats.empty() ? "" : ", ") +
                      module::EnumNameCodeFormat(code->format());
    }
    if (!gpuFormats.empty())
      add("cuda:" + plan->chip()->str() + " (" + gpuFormats + ")");
  }
  return list.empty() ? "nothing" : list;
}
