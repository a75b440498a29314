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
  if (targets.size() > 1)
    name += "-cuda";
  else if (targets.front() != "cpu")
    name += "-" + targets.front();
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

bool ModuleStore::isFresh(const std::string &name) const {
  std::error_code noFile, noCompiler;
  auto made = fs::last_write_time(place(name), noFile);
  auto compiler = fs::last_write_time(binaries + "/prefill-opt", noCompiler);
  return !noFile && (noCompiler || made > compiler);
}

Result<std::string> ModuleStore::get(const ModuleSpec &spec, double *seconds) {
  if (seconds)
    *seconds = 0;
  if (isFresh(spec.fileName()))
    return place(spec.fileName());
  return compile(spec, seconds);
}

Result<std::string> ModuleStore::compile(const ModuleSpec &spec,
                                         double *seconds) {
  std::vector<std::string> options = {"--compile"};
  for (const std::string &target : spec.targets)
    options.push_back("--target=" + target);
  options.insert(options.end(), spec.options.begin(), spec.options.end());
  if (Result<void> ok = make(spec, spec.fileName(), options, seconds); !ok)
    return ok.takeError();
  return place(spec.fileName());
}

Result<std::string> ModuleStore::listTiles(const ModuleSpec &spec) {
  std::string name = fs::path(spec.fileName()).stem().string() + ".tiles.json";
  if (!isFresh(name))
    if (Result<void> ok =
            make(spec, name,
                 {"--list-tiles", "--target=" + spec.targets.front()}, nullptr);
        !ok)
      return ok.takeError();
  return place(name);
}

Result<void> ModuleStore::make(const ModuleSpec &spec, const std::string &name,
                               const std::vector<std::string> &options,
                               double *seconds) {
  std::string path = place(name);
  for (const char *tool : {"prefill-translate", "prefill-opt"})
    if (::access((binaries + "/" + tool).c_str(), X_OK) != 0)
      return Error{ErrorCode::io,
                   "no compiler: " + quote(binaries + "/" + tool) +
                       " is not there and " + quote(path) +
                       " was not made before, expected --bin DIR with the "
                       "compiler or --modules DIR with the module"};
  if (name == spec.fileName())
    std::fprintf(stderr, "compiling %s\n", name.c_str());
  std::string suffix = "." + std::to_string(::getpid());
  TemporaryFile model(path + suffix + ".mlir"), made(path + suffix);
  if (Result<void> ok =
          runTool({binaries + "/prefill-translate", "--synthesize",
                   spec.shape->name, "--layers", std::to_string(spec.layers),
                   "--vocab", std::to_string(spec.vocab), "-o", model.path()},
                  model.path());
      !ok)
    return ok.takeError();
  std::vector<std::string> command = {
      binaries + "/prefill-opt", model.path(), "--kv-layout=" + spec.layout,
      "--max-seq=" + std::to_string(spec.maxSeq)};
  if (spec.dtype == "int8")
    command.insert(command.end(), {"--dtype=bf16", "--weights=int8"});
  else
    command.push_back("--dtype=" + spec.dtype);
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"-o", made.path()});
  auto start = std::chrono::steady_clock::now();
  if (Result<void> ok = runTool(command, made.path()); !ok)
    return ok.takeError();
  if (seconds)
    *seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
  if (std::rename(made.path().c_str(), path.c_str()) != 0)
    return Error{ErrorCode::io,
                 "cannot write " + quote(path) + ": " + std::strerror(errno)};
  return {};
}
