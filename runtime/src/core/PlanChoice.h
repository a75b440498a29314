// Finding the plan and the code of a module that fit a device.
#ifndef PREFILL_RUNTIME_CORE_PLANCHOICE_H
#define PREFILL_RUNTIME_CORE_PLANCHOICE_H

#include "core/ModuleFile.h"

#include <string>
#include <string_view>

namespace prefill::rt {

/// nullptr when the module has no such plan. `chip` is "" for cpu.
const module::Plan *findPlan(const module::Module &file,
                             std::string_view target, std::string_view chip);

/// nullptr when the plan has no such code.
const module::Code *findCode(const module::Plan &plan,
                             module::CodeFormat format,
                             std::string_view variant);

/// "cpu:avx2, cpu:avx512, cuda:sm_80 (cubin, ptx), cuda-emu:sm_80": the devices
/// that the module has code for, or "nothing".
std::string listCode(const module::Module &file);

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_PLANCHOICE_H
