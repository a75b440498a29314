// The bytes of a .pfm, proven safe to read.
#ifndef PREFILL_RUNTIME_CORE_MODULEFILE_H
#define PREFILL_RUNTIME_CORE_MODULEFILE_H

#include "prefill/checkpoint/Result.h"
#include "prefill/module/ElementSize.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace prefill::rt {

/// The version of the container that this runtime reads and the compiler
/// writes.
inline constexpr int32_t moduleFormatVersion = 4;

/// Words of 64 bits that an argument becomes for a kernel (see module.fbs).
int numWords(module::ArgKind kind);

using module::byteSize;
/// Bytes of a weight of a verified plan.
uint64_t byteSize(const module::Weight &weight);

/// Error with code invalidModule.
Error invalidModule(const std::string &message);

/// Checks everything: the FlatBuffers structure first, then the checksum of the
/// file, then every index, size, shape and sum, so that the rest of the runtime
/// may use the tables as they are. `data` must be 8-byte aligned and outlive
/// the result.
Result<const module::Module *> verifyModule(const std::byte *data,
                                            uint64_t size);

/// Refuses a value outside of [low, high]; `what` starts the message.
Result<void> checkRange(const std::string &what, int64_t value, int64_t low,
                        int64_t high);

/// Part of verifyModule: a plan, once what the module says of the model is
/// known to be sane.
Result<void> verifyPlan(const module::Module &file, uint32_t index);

/// Part of verifyPlan: the weight transform program. `resident` weights of
/// any source have a known shape; every source's inputs exist and their shapes
/// give the weight's shape.
Result<void> verifyWeightProgram(const module::Plan &plan, int64_t maxSeq);

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_MODULEFILE_H
