// --describe: what a module file holds.
#ifndef PREFILL_TOOLS_PREFILLRUN_DESCRIBE_H
#define PREFILL_TOOLS_PREFILLRUN_DESCRIBE_H

#include "prefill/checkpoint/Result.h"

#include <string>

namespace prefill::run {

/// The file must have been verified by the runtime. chosenCode: "cpu:avx2",
/// "cuda-emu:sm_80" or the like; empty: none.
rt::Result<std::string> describe(const std::string &path,
                                 const std::string &chosenCode);

} // namespace prefill::run

#endif // PREFILL_TOOLS_PREFILLRUN_DESCRIBE_H
