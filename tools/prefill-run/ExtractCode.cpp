#include "ExtractCode.h"
#include "OutputFile.h"
#include "prefill/checkpoint/MappedFile.h"
#include "prefill/checkpoint/Quote.h"
#include "prefill/module_generated.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace prefill;
using namespace prefill::run;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::MappedFile;
using prefill::rt::quote;
using prefill::rt::Result;

namespace {

const char *extensionOf(module::CodeFormat format) {
  switch (format) {
  case module::CodeFormat::elf:
    return ".so";
  case module::CodeFormat::cubin:
    return ".cubin";
  case module::CodeFormat::ptx:
    return ".ptx";
  case module::CodeFormat::emulation:
    return ".emulation.so";
  }
  return "";
}

/// A directory that was made for the files and is empty is removed again.
class Directory {
public:
  static Result<Directory> open(const std::string &path) {
    Directory directory(path);
    if (::mkdir(path.c_str(), 0777) == 0)
      directory.isNew = true;
    else if (errno != EEXIST)
      return Error{ErrorCode::io, "cannot make the directory " + quote(path) +
                                      ": " + std::strerror(errno)};
    else if (std::error_code ignored;
             !std::filesystem::is_directory(path, ignored))
      return Error{ErrorCode::io, quote(path) + " is no directory (expected "
                                                "one, or a new name)"};
    return directory;
  }
  Directory(Directory &&other) noexcept
      : path(std::move(other.path)), isNew(std::exchange(other.isNew, false)) {}
  Directory &operator=(Directory &&) = delete;
  ~Directory() {
    if (isNew)
      ::rmdir(path.c_str());
  }

private:
  explicit Directory(const std::string &path) : path(path) {}
  std::string path;
  bool isNew = false;
};

} // namespace

Result<std::string> prefill::run::extractCode(const std::string &modulePath,
                                              const std::string &path) {
  Result<MappedFile> mapped = MappedFile::open(modulePath);
  if (!mapped)
    return mapped.takeError();
  Result<Directory> directory = Directory::open(path);
  if (!directory)
    return directory.takeError();
  // Destroyed before the directory: what is not committed goes.
  std::vector<OutputFile> files;
  std::string lines;
  for (const module::Plan *plan : *module::GetModule(mapped->data())->plans())
    for (const module::Code *code : *plan->code()) {
      std::string name = plan->target()->str() + "-" + code->variant()->str() +
                         extensionOf(code->format());
      std::string file = (std::filesystem::path(path) / name).string();
      std::error_code ignored;
      if (name.find('/') != std::string::npos)
        return Error{ErrorCode::invalidModule,
                     quote(modulePath) + " has code for " +
                         quote(code->variant()->str()) +
                         ", expected a variant without '/'"};
      if (std::filesystem::equivalent(file, modulePath, ignored))
        return Error{ErrorCode::invalidArgument,
                     "the module " + quote(modulePath) +
                         " is where --extract-code would write its code, "
                         "expected another directory"};
      Result<OutputFile> output = OutputFile::create(file);
      if (!output)
        return output.takeError();
      files.push_back(std::move(*output));
      if (Result<void> ok = files.back().write(code->object()->data(),
                                               code->object()->size());
          !ok)
        return ok.takeError();
      lines +=
          file + "  " + std::to_string(code->object()->size()) + " bytes\n";
    }
  for (OutputFile &file : files)
    if (Result<void> ok = file.commit(); !ok)
      return ok.takeError();
  return lines;
}
