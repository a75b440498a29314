#include "emulation/Program.h"
#include "emulation/BlockRunner.h"

#include <nlohmann/json.hpp>

using namespace prefill::rt;
using namespace prefill::rt::emulation;

Result<Program> Program::load(const uint8_t *image, size_t size,
                              const std::string &what) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c"))
    return Error{ErrorCode::unsupported,
                 "emulated kernels need a processor with AVX2 and F16C"};
  Result<CodeObject> code = CodeObject::load(image, size, what);
  if (!code)
    return code.takeError();
  Program program(std::move(*code));
  auto *api = static_cast<const Api **>(program.code.symbol(apiSymbol));
  auto *manifest =
      static_cast<const char *>(program.code.symbol(manifestSymbol));
  if (!api || !manifest)
    return Error{ErrorCode::invalidModule,
                 "invalid module: " + what + " has no symbol " +
                     (api ? manifestSymbol : apiSymbol)};
  *api = &BlockRunner::api();
  if (Result<void> read = program.readManifest(manifest, what); !read)
    return read.takeError();
  return program;
}

Result<void> Program::readManifest(const char *text, const std::string &what) {
  auto bad = [&](const std::string &reason) {
    return Error{ErrorCode::invalidModule,
                 "invalid module: the emulation manifest of " + what + " " +
                     reason};
  };
  try {
    nlohmann::json manifest = nlohmann::json::parse(text);
    if (int version = manifest.at("version"); version != abiVersion)
      return bad("has version " + std::to_string(version) + " (expected " +
                 std::to_string(abiVersion) + ")");
    for (const nlohmann::json &entry : manifest.at("sites")) {
      Site site;
      site.name = entry.at("name");
      site.op = entry.at("op");
      site.kind = static_cast<SiteKind>(entry.at("kind").get<int>());
      site.space = static_cast<AddressSpace>(entry.at("space").get<int>());
      site.bytes = entry.at("bytes");
      site.alignment = entry.at("alignment");
      site.parameter = entry.at("parameter");
      site.steersControl = entry.at("steers_control");
      sites.push_back(std::move(site));
    }
    for (const nlohmann::json &entry : manifest.at("kernels")) {
      Kernel kernel;
      kernel.name = entry.at("name");
      kernel.threads = entry.at("threads");
      kernel.sharedBytes = entry.at("shared_bytes");
      kernel.words = entry.at("words");
      kernel.firstSite = entry.at("first_site");
      kernel.numSites = entry.at("num_sites");
      kernel.needsArithmetic = entry.at("needs_arithmetic");
      kernel.entry = reinterpret_cast<KernelEntry>(code.symbol(kernel.name));
      if (!kernel.entry)
        return bad("names a kernel '" + kernel.name + "' without code");
      kernels.push_back(std::move(kernel));
    }
  } catch (const nlohmann::json::exception &exception) {
    return bad(std::string("cannot be read: ") + exception.what());
  }
  return {};
}

const Kernel *Program::kernel(const std::string &name) const {
  for (const Kernel &kernel : kernels)
    if (kernel.name == name)
      return &kernel;
  return nullptr;
}
