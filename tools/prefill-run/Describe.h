// --describe: what a module file holds.
#ifndef PREFILL_TOOLS_PREFILLRUN_DESCRIBE_H
#define PREFILL_TOOLS_PREFILLRUN_DESCRIBE_H

#include "prefill/checkpoint/Result.h"

#include <string>

namespace prefill::run {

/// The file must have been loaded (and with that verified) by the runtime.
rt::Result<std::string> describe(const std::string &path,
                                 const std::string &chosenVariant);

} // namespace prefill::run

#endif // PREFILL_TOOLS_PREFILLRUN_DESCRIBE_H
