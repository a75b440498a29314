// What a file of packed weights depends on.
#ifndef PREFILL_RUNTIME_CORE_WEIGHTSCACHEKEY_H
#define PREFILL_RUNTIME_CORE_WEIGHTSCACHEKEY_H

#include "core/ContentHash.h"
#include "core/ModuleFile.h"
#include "prefill/checkpoint/Safetensors.h"

#include <string>

namespace prefill::rt {

/// Two halves, so that a mismatch can be explained.
struct WeightsCacheKey {
  Hash128 program, checkpoint;
  bool operator==(const WeightsCacheKey &) const = default;

  /// program: hashWeightProgram; checkpoint: hashCheckpoint.
  static Result<WeightsCacheKey> create(const module::Plan &plan,
                                        const std::string &directory,
                                        const Checkpoint &checkpoint);
};

/// Of everything that decides which bytes the weight program gives for a
/// checkpoint, and of nothing else: every weight's name, shape, dtype, source
/// with its parameters, and whether it is resident. Modules that differ in
/// their code, plan or KV layout alone share a hash.
Hash128 hashWeightProgram(const module::Plan &plan);

/// Identifies a checkpoint without reading it: each file's name, size and time
/// of modification, its header, and 64 blocks of 4 KiB spread evenly over it.
/// Reading everything would take as long as packing it anew. Size and time see
/// every ordinary change; the header and the blocks see a checkpoint whose
/// files were replaced by others with their times set back (rsync -t, cp -p, an
/// unpacked archive), since another training run differs nearly everywhere.
/// Not seen is an edit of a few bytes in place whose time was set back by hand.
/// The directory's own place and name do not matter, nor do inode numbers or
/// the time of the status change: a model may be moved or copied with its
/// cache.
Result<Hash128> hashCheckpoint(const std::string &directory,
                               const Checkpoint &checkpoint);

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_WEIGHTSCACHEKEY_H
