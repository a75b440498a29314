// Standard input, output and error, also when the caller closed them.
#ifndef PREFILL_TOOLS_PREFILLRUN_STANDARDSTREAMS_H
#define PREFILL_TOOLS_PREFILLRUN_STANDARDSTREAMS_H

#include "prefill/checkpoint/Result.h"

#include <string>

namespace prefill::run {

/// To be called first. Descriptors 0 to 2 that are closed are opened on
/// /dev/null, so that no file of the run gets their number, and such that using
/// them fails: input for writing, output and error for reading. A file that
/// outgrows the limit of its size becomes an error (EFBIG), not a signal.
void prepareStandardStreams();

/// Writes all of `text` to standard output, flushed. Error: io.
rt::Result<void> print(const std::string &text);

} // namespace prefill::run

#endif // PREFILL_TOOLS_PREFILLRUN_STANDARDSTREAMS_H
