// What a user should know though the call goes on.
#ifndef PREFILL_RUNTIME_CUDA_WARNING_H
#define PREFILL_RUNTIME_CUDA_WARNING_H

#include <cstdio>
#include <string>

namespace prefill::rt::cuda {

/// One line on standard error.
inline void warn(const std::string &message) {
  std::fprintf(stderr, "warning: %s\n", message.c_str());
}

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_WARNING_H
