// --extract-code: the code of a module's kernels as files.
#ifndef PREFILL_TOOLS_PREFILLRUN_EXTRACTCODE_H
#define PREFILL_TOOLS_PREFILLRUN_EXTRACTCODE_H

#include "prefill/checkpoint/Result.h"

#include <string>

namespace prefill::run {

/// Writes every code object of every plan as TARGET-VARIANT.EXTENSION into
/// `directory`, which is made if need be. Files appear once all of them have
/// been written.
/// Returns a line for each file. The module must have been verified by the
/// runtime.
rt::Result<std::string> extractCode(const std::string &module,
                                    const std::string &directory);

} // namespace prefill::run

#endif // PREFILL_TOOLS_PREFILLRUN_EXTRACTCODE_H
