#include "StubEmulation.h"
#include "StubState.h"
#include "core/ModuleFile.h"
#include "prefill/checkpoint/MappedFile.h"

#if defined(__x86_64__)
#include "emulation/Emulator.h"
#endif

#include <filesystem>

using namespace prefill;
using namespace prefill::test::stub;

#if defined(__x86_64__)

namespace {

using namespace prefill::rt;

class EmulatedPlan : public EmulatedImage {
public:
  EmulatedPlan(emulation::Program program) : program(std::move(program)) {}

  std::string launch(const std::string &kernel,
                     const std::vector<uint64_t> &words, unsigned blocks,
                     const std::map<uint64_t, Block> &memory) override {
    emulator.memory().clear();
    for (const auto &[address, block] : memory)
      if (rt::Result<void> ok = emulator.memory().add(
              block.memory.get(), block.bytes, "device memory");
          !ok)
        return ok.error().message;
    emulation::LaunchOptions options;
    options.countSectors = false;
    rt::Result<emulation::LaunchOutcome> outcome =
        emulator.launch(program, kernel, words, blocks, options);
    if (!outcome)
      return outcome.error().message;
    return outcome->report ? outcome->report->message() : "";
  }

private:
  emulation::Program program;
  emulation::Emulator emulator;
};

/// The image is somebody else's memory, whose end is known only where it is
/// equal: no byte behind the first difference is read.
bool startsWith(const void *image, const flatbuffers::Vector<uint8_t> &bytes) {
  const auto *at = static_cast<const uint8_t *>(image);
  for (size_t i = 0; i < bytes.size(); ++i)
    if (at[i] != bytes[i])
      return false;
  return true;
}

const module::Code *emulationOf(const module::Module &file, const void *image) {
  for (const module::Plan *plan : *file.plans()) {
    const module::Code *emulated = nullptr;
    bool isPlan = false;
    for (const module::Code *code : *plan->code()) {
      if (code->format() == module::CodeFormat::emulation)
        emulated = code;
      else if (code->format() != module::CodeFormat::elf)
        isPlan |= startsWith(image, *code->object());
    }
    if (isPlan && emulated)
      return emulated;
  }
  return nullptr;
}

} // namespace

std::shared_ptr<EmulatedImage> EmulatedImage::find(const std::string &directory,
                                                   const void *image,
                                                   std::string &problem) {
  std::error_code failed;
  for (const auto &entry :
       std::filesystem::recursive_directory_iterator(directory, failed)) {
    if (entry.path().extension() != ".pfm")
      continue;
    rt::Result<rt::MappedFile> mapping =
        rt::MappedFile::open(entry.path().string());
    if (!mapping)
      continue;
    rt::Result<const module::Module *> file =
        rt::verifyModule(mapping->data(), mapping->size());
    const module::Code *code = file ? emulationOf(**file, image) : nullptr;
    if (!code)
      continue;
    rt::Result<rt::emulation::Program> program = rt::emulation::Program::load(
        code->object()->data(), code->object()->size(), "emulation code");
    if (program)
      return std::make_shared<EmulatedPlan>(std::move(*program));
    problem = program.error().message;
    return nullptr;
  }
  problem = "no module below " + directory + " has this code for the emulator";
  return nullptr;
}

#else

std::shared_ptr<EmulatedImage>
EmulatedImage::find(const std::string &, const void *, std::string &problem) {
  problem = "the emulator runs on x86-64 only";
  return nullptr;
}

#endif
