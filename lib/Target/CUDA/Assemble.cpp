//===- Assemble.cpp - PTX to a cubin, by ptxas ----------------------------===//
#include "prefill/Target/CUDA/CompileCudaObject.h"
#include "llvm/BinaryFormat/Magic.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::prefill;

std::optional<std::string> prefill::findAssembler() {
  if (auto found = llvm::sys::findProgramByName("ptxas"))
    return *found;
  if (auto found =
          llvm::sys::findProgramByName("ptxas", {"/usr/local/cuda/bin"}))
    return *found;
  return std::nullopt;
}

/// The number in front of `unit`, as in "Used 80 registers".
static bool numberBefore(llvm::StringRef line, llvm::StringRef unit,
                         int64_t &number) {
  size_t at = line.find(unit);
  if (at == llvm::StringRef::npos)
    return false;
  llvm::StringRef before = line.take_front(at).rtrim();
  size_t space = before.find_last_of(" \t");
  llvm::StringRef digits =
      space == llvm::StringRef::npos ? before : before.drop_front(space + 1);
  return !digits.getAsInteger(10, number);
}

// ptxas info    : Compiling entry function 'gemm' for 'sm_80'
// ptxas info    : Function properties for gemm
//     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
// ptxas info    : Used 80 registers, used 1 barriers, 368 bytes cmem[0]
llvm::Expected<std::vector<AssembledKernel>>
prefill::parseAssemblerReport(llvm::StringRef report) {
  std::vector<AssembledKernel> kernels;
  bool haveSpills = true, haveRegisters = true;
  auto incomplete = [&] {
    return llvm::createStringError(
        "ptxas reported no " +
        std::string(haveRegisters ? "spills" : "registers") + " of kernel '" +
        kernels.back().name + "'");
  };
  while (!report.empty()) {
    llvm::StringRef line;
    std::tie(line, report) = report.split('\n');
    constexpr llvm::StringLiteral entry = "Compiling entry function '";
    if (size_t at = line.find(entry); at != llvm::StringRef::npos) {
      if (!haveSpills || !haveRegisters)
        return incomplete();
      kernels.push_back({});
      kernels.back().name =
          line.drop_front(at + entry.size()).split('\'').first.str();
      haveSpills = haveRegisters = false;
      continue;
    }
    if (kernels.empty())
      continue;
    int64_t stores = 0, loads = 0;
    if (numberBefore(line, "bytes spill stores", stores) &&
        numberBefore(line, "bytes spill loads", loads)) {
      kernels.back().spillBytes = stores + loads;
      haveSpills = true;
    }
    if (numberBefore(line, "registers", kernels.back().registers))
      haveRegisters = true;
  }
  if (!haveSpills || !haveRegisters)
    return incomplete();
  return kernels;
}

/// The line of the assembler's messages that says what is wrong: `-v` may print
/// others first.
static llvm::StringRef complaintOf(llvm::StringRef messages) {
  llvm::StringRef first;
  while (!messages.empty()) {
    llvm::StringRef line;
    std::tie(line, messages) = messages.split('\n');
    line = line.trim();
    if (line.contains("error") || line.contains("fatal"))
      return line;
    if (first.empty())
      first = line;
  }
  return first;
}

namespace {

/// Removed when it goes.
struct TemporaryFile {
  llvm::SmallString<128> path;
  std::error_code error;
  std::optional<llvm::FileRemover> remover;

  explicit TemporaryFile(llvm::StringRef suffix)
      : error(llvm::sys::fs::createTemporaryFile("prefill", suffix, path)) {
    if (!error)
      remover.emplace(path);
  }
};

} // namespace

FailureOr<CudaObject> prefill::assemble(std::string ptx, const CudaChip &chip,
                                        llvm::StringRef assembler,
                                        Location loc) {
  TemporaryFile input("ptx"), output("cubin"), messages("txt");
  for (const TemporaryFile *file : {&input, &output, &messages})
    if (file->error)
      return emitError(loc, "cannot create a temporary file: ")
                 << file->error.message(),
             failure();
  {
    std::error_code error;
    llvm::raw_fd_ostream stream(input.path, error);
    stream << ptx;
    stream.close();
    if (error || stream.has_error()) {
      stream.clear_error();
      return emitError(loc, "cannot write ") << input.path, failure();
    }
  }
  std::string arch = ("-arch=" + chip.name).str();
  std::string problem;
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""),
                                                llvm::StringRef(messages.path),
                                                llvm::StringRef(messages.path)};
  int code = llvm::sys::ExecuteAndWait(
      assembler, {assembler, "-v", "-O3", arch, input.path, "-o", output.path},
      std::nullopt, redirects, 0, 0, &problem);
  auto report = llvm::MemoryBuffer::getFile(messages.path);
  llvm::StringRef text = report ? (*report)->getBuffer() : "";
  llvm::StringRef complaint = complaintOf(text);
  if (code < 0) { // it never ran, or a signal ended it
    InFlightDiagnostic error = emitError(loc, "cannot run the assembler '")
                               << assembler << "' for " << chip.name << ": "
                               << problem;
    if (!complaint.empty())
      error << ": " << complaint;
    return error;
  }
  if (code != 0)
    return emitError(loc, "")
               << assembler << " refused the code for " << chip.name
               << (complaint.empty()
                       ? " without a message, exit code " + std::to_string(code)
                       : ": " + complaint.str()),
           failure();
  auto cubin = llvm::MemoryBuffer::getFile(output.path, /*IsText=*/false,
                                           /*RequiresNullTerminator=*/false);
  if (!cubin)
    return emitError(loc, "cannot read ")
               << output.path << ": " << cubin.getError().message(),
           failure();
  llvm::StringRef bytes = (*cubin)->getBuffer();
  if (llvm::identify_magic(bytes) < llvm::file_magic::elf ||
      llvm::identify_magic(bytes) > llvm::file_magic::elf_core)
    return emitError(loc, "")
               << assembler << " ended well but wrote no cubin for "
               << chip.name << ": " << bytes.size()
               << " bytes, expected an ELF file",
           failure();
  auto kernels = parseAssemblerReport(text);
  if (!kernels)
    return emitError(loc, llvm::toString(kernels.takeError())), failure();
  CudaObject object;
  object.ptx = std::move(ptx);
  object.cubin.assign(bytes.begin(), bytes.end());
  object.kernels = std::move(*kernels);
  return object;
}
