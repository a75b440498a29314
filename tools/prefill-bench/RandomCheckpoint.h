// A checkpoint directory for a module, with random numbers.
#ifndef PREFILL_TOOLS_PREFILLBENCH_RANDOMCHECKPOINT_H
#define PREFILL_TOOLS_PREFILLBENCH_RANDOMCHECKPOINT_H

#include "core/LoadedModule.h"
#include "prefill/checkpoint/Result.h"

#include <string>

namespace prefill::bench {

using rt::Result;

/// DIRECTORY/config.json and model.safetensors with every tensor that the
/// module reads, as bf16. Does nothing when both are there.
Result<void> writeRandomCheckpoint(const std::string &directory,
                                   const rt::LoadedModule &module);

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_RANDOMCHECKPOINT_H
