// NumPy's .npy format, version 1.0.
#ifndef PREFILL_TOOLS_PREFILLRUN_NPYFILE_H
#define PREFILL_TOOLS_PREFILLRUN_NPYFILE_H

#include "OutputFile.h"

#include <cstdint>
#include <vector>

namespace prefill::run {

/// Writes an f32 array, row-major, and commits the file. `data` has as many
/// elements as `shape` says.
rt::Result<void> writeNpy(OutputFile &file, const std::vector<int64_t> &shape,
                          const std::vector<float> &data);

} // namespace prefill::run

#endif // PREFILL_TOOLS_PREFILLRUN_NPYFILE_H
