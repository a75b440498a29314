// What the parts of verifyPlan share.
#ifndef PREFILL_RUNTIME_CORE_PLANVERIFIER_H
#define PREFILL_RUNTIME_CORE_PLANVERIFIER_H

#include "prefill/checkpoint/Result.h"
#include "prefill/module_generated.h"

#include <cstdint>
#include <string>

namespace prefill::rt {

inline constexpr uint32_t maxLaunchArgs = 1024;

/// "buffer 3 'hidden'".
std::string indexed(const char *kind, uint32_t index,
                    const flatbuffers::String *name);

bool isCuda(const module::Plan &plan);

/// Buckets, buffers and launches, once weights and kernels are known to be
/// sane.
Result<void> verifySchedules(const module::Module &file,
                             const module::Plan &plan);

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_PLANVERIFIER_H
