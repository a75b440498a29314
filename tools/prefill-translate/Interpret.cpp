//===- Interpret.cpp - --interpret ----------------------------------------===//
// Runs a module in the reference interpreter, one sequence from an empty cache.
//===----------------------------------------------------------------------===//
#include "Command.h"
#include "InputFile.h"
#include "NumpyFile.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "prefill/Reference/Interpreter.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using ::prefill::rt::ErrorCode;
using ::prefill::rt::Result;

static ::prefill::rt::Error invalid(const Twine &message) {
  return {ErrorCode::invalidArgument, message.str()};
}
/// The interpreter's messages quote names that come out of the file.
static ::prefill::rt::Error invalid(llvm::Error error) {
  return invalid(printable(llvm::toString(std::move(error))));
}

static std::optional<StringRef> find(const OptionValues &values,
                                     StringRef name) {
  auto found = values.find(std::string_view(name));
  if (found == values.end())
    return std::nullopt;
  return StringRef(found->second);
}

/// Parsed and verified; the first diagnostic, with its place, is the error.
static Result<OwningOpRef<ModuleOp>> parseModel(MLIRContext &context,
                                                StringRef path) {
  if (Result<void> readable = checkInputFile(path); !readable)
    return readable.takeError();
  std::string problem;
  ScopedDiagnosticHandler first(&context, [&](Diagnostic &diagnostic) {
    if (problem.empty() &&
        diagnostic.getSeverity() == DiagnosticSeverity::Error) {
      // A diagnostic may have several lines; the error has one.
      std::string text = diagnostic.str();
      llvm::replace(text, '\n', ' ');
      llvm::raw_string_ostream stream(problem);
      if (auto place = dyn_cast<FileLineColLoc>(diagnostic.getLocation()))
        stream << place.getFilename().getValue() << ":" << place.getLine()
               << ":" << place.getColumn() << ": ";
      stream << printable(text);
    }
    return success();
  });
  auto module = parseSourceFile<ModuleOp>(path, &context);
  if (module)
    return module;
  return invalid(problem.empty() ? "cannot read '" + path.str() + "'"
                                 : problem);
}

/// Token numbers with one comma or white space between two of them, bare or as
/// a JSON list.
static Result<std::vector<int32_t>> parseTokens(StringRef text,
                                                StringRef what) {
  StringRef list = text.trim();
  bool opens = list.consume_front("["), closes = list.consume_back("]");
  if (opens != closes)
    return invalid(what + " has '" + (opens ? "[" : "]") + "' without '" +
                   (opens ? "]" : "[") + "', expected a list of token numbers");
  std::vector<int32_t> tokens;
  list = list.trim();
  while (!list.empty()) {
    StringRef word =
        list.take_until([](char c) { return c == ',' || llvm::isSpace(c); });
    int32_t token;
    if (word.empty())
      return invalid(what + " has a comma with no token before it, expected "
                            "one comma between two tokens");
    if (word.getAsInteger(10, token))
      return invalid(what + " has '" + printable(word) +
                     "', expected token numbers");
    tokens.push_back(token);
    list = list.drop_front(word.size()).ltrim();
    if (!list.consume_front(","))
      continue;
    list = list.ltrim();
    if (list.empty())
      return invalid(what + " ends with a comma, expected a token after it");
  }
  if (tokens.empty())
    return invalid(what + " has no token, expected at least one");
  return tokens;
}

static Result<std::vector<int32_t>> getTokens(const OptionValues &values) {
  std::optional<StringRef> list = find(values, "--tokens");
  std::optional<StringRef> file = find(values, "--tokens-file");
  if (list.has_value() == file.has_value())
    return invalid("--interpret needs one of --tokens and --tokens-file");
  if (list)
    return parseTokens(*list, "option --tokens");
  if (Result<void> readable = checkInputFile(*file); !readable)
    return readable.takeError();
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(*file);
  if (!buffer)
    return ::prefill::rt::Error{ErrorCode::io,
                                "cannot read '" + file->str() +
                                    "': " + buffer.getError().message()};
  return parseTokens((*buffer)->getBuffer(), "file '" + file->str() + "'");
}

static Result<std::unique_ptr<WeightProvider>>
getWeights(const OptionValues &values) {
  std::optional<StringRef> directory = find(values, "--weights");
  std::optional<StringRef> seed = find(values, "--random-weights");
  if (directory.has_value() == seed.has_value())
    return invalid("--interpret needs one of --weights and --random-weights");
  if (seed) {
    uint64_t number;
    if (seed->getAsInteger(10, number))
      return invalid("option --random-weights is '" + *seed +
                     "', expected a seed from 0 to 2^64 - 1");
    return std::unique_ptr<WeightProvider>(
        std::make_unique<RandomWeights>(number));
  }
  auto checkpoint = ::prefill::rt::Checkpoint::open(directory->str());
  if (!checkpoint)
    return checkpoint.takeError();
  return std::unique_ptr<WeightProvider>(
      std::make_unique<CheckpointWeights>(std::move(*checkpoint)));
}

static Result<Rounding> getRounding(const OptionValues &values) {
  StringRef name = find(values, "--rounding").value_or("none");
  if (name == "none")
    return Rounding::None;
  if (name == "model")
    return Rounding::Model;
  return invalid("option --rounding is '" + name + "', expected none or model");
}

/// One line for each tensor that an op makes, on stderr.
static void printTrace(Operation *op, const Tensor &value) {
  llvm::errs() << op->getName();
  if (auto layer = op->getAttrOfType<IntegerAttr>(kLayerAttr))
    llvm::errs() << " layer=" << layer.getInt();
  if (auto name = op->getAttrOfType<StringAttr>(kNameAttr))
    llvm::errs() << " name=" << name.getValue();
  llvm::errs() << " shape=" << value.rows() << "x" << value.channels()
               << " norm=" << llvm::format("%.17g", value.norm()) << "\n";
}

/// Logits of the last row, or of all rows, of one sequence that is run `chunk`
/// tokens at a time.
static Result<Tensor> runSequence(Interpreter &interpreter,
                                  ArrayRef<int32_t> tokens, int64_t chunk,
                                  bool allRows) {
  llvm::Expected<int64_t> blockSize = interpreter.blockSize();
  if (!blockSize)
    return invalid(blockSize.takeError());
  BatchBuilder builder(/*numSequences=*/1, tokens.size(), *blockSize);
  llvm::Expected<std::vector<KVCache>> caches =
      interpreter.makeCaches(builder.numBlocks());
  if (!caches)
    return invalid(caches.takeError());
  Tensor all;
  while (!tokens.empty()) {
    ArrayRef<int32_t> part = tokens.take_front(chunk);
    tokens = tokens.drop_front(part.size());
    Step step;
    step.tokens.emplace_back(part.begin(), part.end());
    step.allRows = allRows;
    llvm::Expected<Batch> batch = builder.next(step);
    if (!batch)
      return invalid(batch.takeError());
    llvm::Expected<Tensor> logits = interpreter.run(*batch, *caches);
    if (!logits)
      return invalid(logits.takeError());
    if (!allRows || all.shape.empty()) {
      all = std::move(*logits);
      continue;
    }
    all.shape[0] += logits->rows();
    all.values.insert(all.values.end(), logits->values.begin(),
                      logits->values.end());
  }
  return all;
}

/// What prefill-run prints too: the largest logits of the last row.
static void printTop(const Tensor &logits) {
  const double *row = logits.row(logits.rows() - 1);
  std::vector<int64_t> order(logits.channels());
  for (auto [index, value] : llvm::enumerate(order))
    value = index;
  size_t count = std::min<size_t>(5, order.size());
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](int64_t a, int64_t b) {
                      return row[a] != row[b] ? row[a] > row[b] : a < b;
                    });
  for (int64_t token : ArrayRef(order).take_front(count))
    llvm::outs() << "token " << token << " logit "
                 << llvm::format("%.9g", row[token]) << "\n";
}

Result<void> mlir::prefill::runInterpret(const OptionValues &values) {
  Result<Rounding> rounding = getRounding(values);
  if (!rounding)
    return rounding.takeError();
  Result<std::vector<int32_t>> tokens = getTokens(values);
  if (!tokens)
    return tokens.takeError();
  int64_t chunk = tokens->size();
  if (std::optional<StringRef> given = find(values, "--chunk")) {
    Result<int64_t> number = parseInteger("--chunk", *given);
    if (!number)
      return number.takeError();
    if (*number < 1)
      return invalid("option --chunk is " + *given + ", expected at least 1");
    chunk = *number;
  }

  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<PrefillDialect, func::FuncDialect>();
  Result<OwningOpRef<ModuleOp>> module =
      parseModel(context, *find(values, "--interpret"));
  if (!module)
    return module.takeError();
  Result<std::unique_ptr<WeightProvider>> weights = getWeights(values);
  if (!weights)
    return weights.takeError();

  Interpreter interpreter(module->get(), **weights, *rounding);
  if (find(values, "--trace"))
    interpreter.setTraceHook(printTrace);
  Result<Tensor> logits = runSequence(interpreter, *tokens, chunk,
                                      find(values, "--all-logits").has_value());
  if (!logits)
    return logits.takeError();
  if (std::optional<StringRef> path = find(values, "--logits-out")) {
    // The last row alone is a vector, as prefill-run writes it.
    if (!find(values, "--all-logits"))
      logits->shape = {logits->channels()};
    return writeNumpyF32(*path, *logits);
  }
  printTop(*logits);
  return {};
}
