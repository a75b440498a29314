// Files that appear complete or not at all.
#ifndef PREFILL_TOOLS_PREFILLRUN_OUTPUTFILE_H
#define PREFILL_TOOLS_PREFILLRUN_OUTPUTFILE_H

#include "prefill/checkpoint/Result.h"

#include <cstdio>
#include <string>

namespace prefill::run {

/// The file that opening `path` for writing would make or change: where its
/// last part is a symbolic link, what that names, which need not exist.
std::string followLinks(const std::string &path);

/// Written under a temporary name in the same directory and renamed by
/// commit(); a link to the file stays one; removed when it is never committed.
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
  rt::Error failure(const char *action) const;

  std::string path, temporaryPath;
  std::FILE *file = nullptr;
};

} // namespace prefill::run

#endif // PREFILL_TOOLS_PREFILLRUN_OUTPUTFILE_H
