//===- prefill-translate.cpp - models in and out of the prefill dialect ---===//
// docs: `prefill-translate --help`.
//===----------------------------------------------------------------------===//
#include "Command.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <fcntl.h>
#include <new>
#include <unistd.h>

using namespace llvm;
using namespace mlir::prefill;

using ::prefill::rt::ErrorCode;
using ::prefill::rt::Result;

static const OptionSpec output{"-o", "FILE",
                               "where to write; '-' (the default) is stdout"};
static const OptionSpec importOptions[] = {output};
static const OptionSpec synthesizeOptions[] = {
    {"--layers", "N", "another number of layers"},
    {"--vocab", "N", "another vocabulary size"},
    output};

static const OptionSpec interpretOptions[] = {
    {"--weights", "DIR", "a Hugging Face checkpoint (*.safetensors)"},
    {"--random-weights", "SEED", "the weights of prefill-run --random-weights"},
    {"--tokens", "1,2,3", "the prompt"},
    {"--tokens-file", "FILE", "the prompt: token numbers, a JSON list or bare"},
    {"--rounding", "none|model",
     "f64 throughout (default), or round each op's result to its type"},
    {"--chunk", "N", "at most N tokens a call (default: all)"},
    {"--all-logits", nullptr, "logits of every row, not of the last"},
    {"--logits-out", "FILE", "f32 logits as .npy, in place of the top five"},
    {"--trace", nullptr, "shape and norm of every op's result, on stderr"}};

static const Command commands[] = {
    {{"--import-hf", "DIR",
      "import a Hugging Face directory (config.json and *.safetensors)"},
     importOptions,
     runImportHuggingFace},
    {{"--synthesize", "SHAPE",
      "the model of a known shape, without a checkpoint: llama-2-7b, "
      "llama-3-8b, llama-3-70b, llama-3.2-1b or qwen2.5-0.5b"},
     synthesizeOptions,
     runSynthesize},
    {{"--interpret", "FILE",
      "runs IR of level model, fused or config in the f64 reference"},
     interpretOptions,
     runInterpret},
};

static ::prefill::rt::Error invalid(const Twine &message) {
  return {ErrorCode::invalidArgument, message.str()};
}

static void printOption(const OptionSpec &option, unsigned indent) {
  std::string left = option.name;
  if (option.value)
    left += std::string(" ") + option.value;
  outs().indent(indent) << left_justify(left, 28 - indent) << option.help
                        << "\n";
}

static void printHelp() {
  outs() << "Writes models as IR of the prefill dialect, and runs such IR.\n\n"
         << "usage: prefill-translate COMMAND [OPTIONS]\n\n";
  for (const Command &command : commands) {
    printOption(command.selector, 2);
    for (const OptionSpec &option : command.options)
      printOption(option, 4);
  }
}

static std::string selectorNames() {
  SmallVector<StringRef> names;
  for (const Command &command : commands)
    names.push_back(command.selector.name);
  return join(names, ", ");
}

/// The command that an argument selects (`--x` or `--x=...`), or null.
static const Command *findCommand(ArrayRef<StringRef> arguments) {
  for (StringRef argument : arguments)
    for (const Command &command : commands)
      if (argument.split('=').first == command.selector.name)
        return &command;
  return nullptr;
}

/// What a user may expect of this tool and will not find in it.
static std::optional<std::string> findMissing(ArrayRef<StringRef> arguments) {
  for (StringRef argument : arguments)
    if (argument.split('=').first == "--import-gguf")
      return "--import-gguf: this build has no GGUF importer, expected a "
             "Hugging Face directory (--import-hf DIR)";
  return std::nullopt;
}

static Result<OptionValues> parseOptions(const Command &command,
                                         ArrayRef<StringRef> arguments) {
  SmallVector<OptionSpec> known{command.selector};
  known.append(command.options.begin(), command.options.end());
  OptionValues values;
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto [name, value] = arguments[i].split('=');
    bool hasValue = arguments[i].contains('=');
    const OptionSpec *spec = find_if(
        known, [&, name = name](auto &option) { return name == option.name; });
    if (spec == known.end()) {
      std::string names = join(
          map_range(known, [](auto &option) { return StringRef(option.name); }),
          ", ");
      return invalid("unknown option '" + name + "' of " +
                     command.selector.name + ", expected one of " + names);
    }
    if (!spec->value && hasValue)
      return invalid(Twine("option ") + spec->name + " takes no value, got '" +
                     value + "'");
    if (spec->value && !hasValue && i + 1 < arguments.size())
      value = arguments[++i];
    if (spec->value && value.empty())
      return invalid(Twine("option ") + spec->name +
                     " needs a value: " + spec->name + " " + spec->value);
    values[spec->name] = value.str();
  }
  return values;
}

static Result<void> dispatch(ArrayRef<StringRef> arguments) {
  if (std::optional<std::string> missing = findMissing(arguments))
    return invalid(*missing);
  const Command *command = findCommand(arguments);
  if (!command)
    return invalid((arguments.empty()
                        ? Twine("no command")
                        : "no command in '" + join(arguments, " ") + "'") +
                   ", expected one of " + selectorNames());
  Result<OptionValues> values = parseOptions(*command, arguments);
  if (!values)
    return values.takeError();
  return command->run(*values);
}

Result<int64_t> mlir::prefill::parseInteger(StringRef option, StringRef value) {
  int64_t number;
  if (value.getAsInteger(10, number))
    return invalid("option " + option + " is '" + value +
                   "', expected a whole number");
  return number;
}

/// A closed stdin, stdout or stderr is opened so that using it fails, as the
/// next file that is opened would otherwise take its number.
static void reserveStandardStreams() {
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0)
      (void)::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/// A model or a cache beyond this machine's memory; there are no exceptions.
[[noreturn]] static void failWithoutMemory() {
  static constexpr char message[] = "error: not enough memory\n";
  (void)!::write(STDERR_FILENO, message, sizeof message - 1);
  ::_exit(1);
}

/// What was written to stdout has arrived there. Otherwise the stream's
/// destructor would abort.
static Result<void> finishStdout() {
  outs().flush();
  std::error_code code = outs().error();
  outs().clear_error();
  if (code)
    return ::prefill::rt::Error{ErrorCode::io,
                                "cannot write to stdout: " + code.message()};
  return {};
}

int main(int argc, char **argv) {
  reserveStandardStreams();
  std::set_new_handler(failWithoutMemory);
  SmallVector<StringRef> arguments(argv + 1, argv + argc);
  Result<void> done;
  if (is_contained(arguments, "--help") || is_contained(arguments, "-h"))
    printHelp();
  else
    done = dispatch(arguments);
  Result<void> written = finishStdout();
  if (done && !written)
    done = std::move(written);
  if (done)
    return 0;
  errs() << "error: ";
  // The command line may hold anything: the error is one line nevertheless.
  for (char c : done.error().message)
    if (isPrint(c) || (c & 0x80))
      errs() << c;
    else
      errs() << format("\\x%02X", unsigned(c));
  errs() << "\n";
  return 1;
}
