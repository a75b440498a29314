#include "ModuleStore.h"
#include "Interruption.h"
#include "prefill/checkpoint/Quote.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sys/wait.h>
#include <unistd.h>

using namespace prefill::bench;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::quote;
namespace fs = std::filesystem;

namespace {

/// The line that a failed tool ended with: the last one that starts with
/// "error:" or contains " error:", or else its last.
std::string errorLine(const std::string &text) {
  std::string last, error;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (!line.empty())
      last = line;
    if (line.find("error:") != std::string::npos && error.empty())
      error = line;
    begin = end + 1;
  }
  return error.empty() ? last : error;
}

/// Runs a program to its end, which writes `output`; its standard error is part
/// of the message when it fails.
Result<void> runTool(const std::vector<std::string> &command,
                     const std::string &output) {
  std::vector<char *> arguments;
  for (const std::string &argument : command)
    arguments.push_back(const_cast<char *>(argument.c_str()));
  arguments.push_back(nullptr);
  std::string name = fs::path(command[0]).filename().string();
  auto failure = [&](const std::string &what) {
    return Error{ErrorCode::io,
                 "cannot start " + quote(command[0]) + ": " + what};
  };

  std::unique_ptr<std::FILE, int (*)(std::FILE *)> messages(std::tmpfile(),
                                                            std::fclose);
  if (!messages)
    return failure(std::strerror(errno));
  int status;
  if (int error = runToEnd(command[0].c_str(), arguments.data(),
                           ::fileno(messages.get()), status))
    return failure(std::strerror(error));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    if (::access(output.c_str(), F_OK) == 0)
      return {};
    return Error{ErrorCode::io,
                 quote(command[0]) + " ended well, but wrote no " +
                     quote(output) + ", expected the compiler's tool"};
  }

  std::string text;
  std::rewind(messages.get());
  char block[4096];
  while (size_t count = std::fread(block, 1, sizeof block, messages.get()))
    text.append(block, count);
  std::string line = errorLine(text);
  return Error{
      ErrorCode::io,
      name +
          (WIFEXITED(status)
               ? " ended with exit code " + std::to_string(WEXITSTATUS(status))
               : " was ended by signal " + std::to_string(WTERMSIG(status))) +
          (line.empty() ? " without a message" : ": " + line)};
}

} // namespace

std::string ModuleSpec::fileName() const {
  std::string name = std::string(shape->name) + "-l" + std::to_string(layers) +
                     "-v" + std::to_string(vocab) + "-" + dtype + "-" + layout +
                     "-s" + std::to_string(maxSeq);
  if (!optionsName.empty())
    name += "-" + optionsName;
  for (char &c : name)
    if (c == ':' || c == '/')
      c = '_';
  return name + ".pfm";
}

std::string prefill::bench::executableDirectory() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

Result<std::string> prefill::bench::userCacheDirectory() {
  const char *cache = std::getenv("XDG_CACHE_HOME"),
             *home = std::getenv("HOME");
  if (cache && *cache)
    return std::string(cache) + "/prefill";
  if (home && *home)
    return std::string(home) + "/.cache/prefill";
  return Error{ErrorCode::io,
               "no cache directory: neither XDG_CACHE_HOME nor HOME is set"};
}

Result<ModuleStore> ModuleStore::open(const std::string &binaries,
                                      const std::string &directory) {
  std::string place = directory;
  if (place.empty()) {
    Result<std::string> cache = userCacheDirectory();
    if (!cache) {
      Error error = cache.takeError();
      error.message += ", expected one of them or --modules DIR";
      return error;
    }
    place = *cache + "/bench-modules";
  }
  std::error_code failed;
  fs::create_directories(place, failed);
  if (failed)
    return Error{ErrorCode::io, "cannot make directory " + quote(place) + ": " +
                                    failed.message()};
  return ModuleStore(binaries, place);
}

Result<std::string> ModuleStore::get(const ModuleSpec &spec, double *seconds) {
  if (seconds)
    *seconds = 0;
  std::string path = directory + "/" + spec.fileName();
  std::error_code noModule, noCompiler;
  auto made = fs::last_write_time(path, noModule);
  auto compiler = fs::last_write_time(binaries + "/prefill-opt", noCompiler);
  if (!noModule && (noCompiler || made > compiler))
    return path;
  return compile(spec, seconds);
}

Result<std::string> ModuleStore::compile(const ModuleSpec &spec,
                                         double *seconds) {
  std::string path = directory + "/" + spec.fileName();
  for (const char *tool : {"prefill-translate", "prefill-opt"})
    if (::access((binaries + "/" + tool).c_str(), X_OK) != 0)
      return Error{ErrorCode::io,
                   "no compiler: " + quote(binaries + "/" + tool) +
                       " is not there and " + quote(path) +
                       " was not made before, expected --bin DIR with the "
                       "compiler or --modules DIR with the module"};
  std::string suffix = "." + std::to_string(::getpid());
  TemporaryFile model(path + suffix + ".mlir"), module(path + suffix);
  if (Result<void> ok =
          runTool({binaries + "/prefill-translate", "--synthesize",
                   spec.shape->name, "--layers", std::to_string(spec.layers),
                   "--vocab", std::to_string(spec.vocab), "-o", model.path()},
                  model.path());
      !ok)
    return ok.takeError();
  std::vector<std::string> command = {binaries + "/prefill-opt",
                                      model.path(),
                                      "--compile",
                                      "--target=cpu",
                                      "--dtype=" + spec.dtype,
                                      "--kv-layout=" + spec.layout,
                                      "--max-seq=" +
                                          std::to_string(spec.maxSeq),
                                      "-o",
                                      module.path()};
  command.insert(command.end(), spec.options.begin(), spec.options.end());
  std::fprintf(stderr, "compiling %s\n", spec.fileName().c_str());
  auto start = std::chrono::steady_clock::now();
  if (Result<void> ok = runTool(command, module.path()); !ok)
    return ok.takeError();
  if (seconds)
    *seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
  if (std::rename(module.path().c_str(), path.c_str()) != 0)
    return Error{ErrorCode::io,
                 "cannot write " + quote(path) + ": " + std::strerror(errno)};
  return path;
}
