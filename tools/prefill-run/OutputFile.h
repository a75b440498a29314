// Files that appear complete or not at all.
#ifndef PREFILL_TOOLS_PREFILLRUN_OUTPUTFILE_H
#define PREFILL_TOOLS_PREFILLRUN_OUTPUTFILE_H

#include "prefill/checkpoint/NamelessFile.h"

#include <cstdio>
#include <memory>
#include <string>

namespace prefill::run {

/// A file that commit() puts in the place of what is there; nothing is left of
/// it when it is never committed or the process ends before. A device or a pipe
/// cannot be replaced and is written to at once.
class OutputFile {
public:
  /// Opening early tells before a long run that the place is not writable.
  static rt::Result<OutputFile> create(const std::string &path);

  OutputFile(OutputFile &&other) noexcept;
  OutputFile &operator=(OutputFile &&) = delete;
  OutputFile(const OutputFile &) = delete;
  ~OutputFile();

  rt::Result<void> write(const void *data, size_t size);
  rt::Result<void> write(const std::string &text) {
    return write(text.data(), text.size());
  }
  rt::Result<void> commit();

private:
  OutputFile() = default;
  rt::Error failure() const;

  std::string path;
  std::unique_ptr<rt::NamelessFile> nameless; ///< null: written to at once
  std::FILE *file = nullptr;
};

} // namespace prefill::run

#endif // PREFILL_TOOLS_PREFILLRUN_OUTPUTFILE_H
