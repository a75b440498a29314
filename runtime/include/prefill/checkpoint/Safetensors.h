// Reads a Hugging Face checkpoint: `model.safetensors`, or the shards that
// `model.safetensors.index.json` names. Format:
// https://github.com/huggingface/safetensors (u64 header length, JSON header,
// data).
#ifndef PREFILL_CHECKPOINT_SAFETENSORS_H
#define PREFILL_CHECKPOINT_SAFETENSORS_H

#include "prefill/checkpoint/MappedFile.h"
#include "prefill/checkpoint/Result.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace prefill::rt {

/// Element types of the format. Reading a file accepts all of them; who needs a
/// float asks for what it can convert.
enum class StoredType {
  BOOL,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  F64,
  I64,
  U64
};

/// "BF16": the spelling of the format.
const char *stringify(StoredType type);
/// Bytes of one element.
uint64_t byteSize(StoredType type);

/// "[2, 3]"; "[]" for a scalar.
std::string stringifyShape(const std::vector<int64_t> &shape);

/// One tensor, row-major. The data lie in the mapped file: they live as long as
/// the Checkpoint and need not be aligned to the element size (the format does
/// not promise it), so read them with memcpy.
struct TensorView {
  std::string name;
  StoredType dtype;
  std::vector<int64_t> shape;
  const std::byte *data; ///< nullptr possible when size is 0
  uint64_t
      size; ///< bytes: the number of elements times byteSize(dtype), checked
  std::string file; ///< name inside the directory, for messages

  uint64_t numElements() const { return size / byteSize(dtype); }
};

/// The tensors of a directory.
class Checkpoint {
public:
  /// Refused, naming file and tensor: a missing or unreadable file;
  /// `model.safetensors` and an index side by side; a header longer than the
  /// file or 100 MB; invalid JSON (repeated keys included); an unknown dtype; a
  /// shape that is not a list of numbers >= 0 or whose size overflows; offsets
  /// that are out of range, reversed, overlap, leave holes or disagree with
  /// shape and dtype; a shard name that is more than a file name; a tensor that
  /// the index names and its shard lacks, or the reverse.
  static Result<Checkpoint> open(const std::string &directory);

  /// Sorted by name.
  const std::vector<TensorView> &tensors() const { return views; }
  /// nullptr when there is none.
  const TensorView *find(std::string_view name) const;

  struct File {
    std::string name; ///< inside the directory
    MappedFile mapping;
  };
  /// Sorted by name.
  const std::vector<File> &files() const { return mappedFiles; }

private:
  Result<void> addFile(const std::string &directory, const std::string &name);
  Result<void> addShards(const std::string &directory,
                         const std::string &indexName);

  std::vector<File> mappedFiles;
  std::vector<TensorView> views;
};

} // namespace prefill::rt

#endif // PREFILL_CHECKPOINT_SAFETENSORS_H
