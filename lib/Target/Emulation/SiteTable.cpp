//===- SiteTable.cpp - names of sites and the manifest --------------------===//
#include "SiteTable.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::prefill::emulation;

static std::string locationName(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().str();
  if (auto fused = dyn_cast<FusedLoc>(loc)) {
    for (Location part : fused.getLocations())
      if (std::string name = locationName(part); !name.empty())
        return name;
    return "";
  }
  if (auto call = dyn_cast<CallSiteLoc>(loc))
    return locationName(call.getCallee());
  if (auto file = dyn_cast<FileLineColLoc>(loc))
    return file.getFilename().str() + ":" + std::to_string(file.getLine());
  return "";
}

std::string mlir::prefill::emulation::siteName(Location loc, StringRef op,
                                               size_t number) {
  std::string name = locationName(loc);
  return name.empty() ? op.str() + "#" + std::to_string(number) : name;
}

std::string Manifest::toJson() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream json(stream);
  json.object([&] {
    json.attribute("version", abiVersion);
    json.attributeArray("kernels", [&] {
      for (const Kernel &kernel : kernels)
        json.object([&] {
          json.attribute("name", kernel.name);
          json.attribute("threads", kernel.threads);
          json.attribute("shared_bytes", kernel.sharedBytes);
          json.attribute("words", kernel.words);
          json.attribute("first_site", kernel.firstSite);
          json.attribute("num_sites", kernel.numSites);
          json.attribute("needs_arithmetic", kernel.needsArithmetic);
        });
    });
    json.attributeArray("sites", [&] {
      for (const Site &site : sites)
        json.object([&] {
          json.attribute("name", site.name);
          json.attribute("op", site.op);
          json.attribute("kind", static_cast<int>(site.kind));
          json.attribute("space", static_cast<int>(site.space));
          json.attribute("bytes", site.bytes);
          json.attribute("alignment", site.alignment);
          json.attribute("parameter", site.parameter);
          json.attribute("steers_control", site.steersControl);
        });
    });
  });
  return text;
}
