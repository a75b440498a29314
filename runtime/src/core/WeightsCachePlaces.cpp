#include "core/WeightsCachePlaces.h"
#include "core/ContentHash.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sys/stat.h>

using namespace prefill::rt;

std::vector<std::string>
prefill::rt::weightsCachePlaces(const std::string &modulePath,
                                std::string_view target) {
  std::string suffix =
      target == "cpu" ? ".weights" : "." + std::string(target) + ".weights";
  std::error_code error;
  std::filesystem::path module = std::filesystem::canonical(modulePath, error);
  if (error)
    return {};
  std::vector<std::string> places = {module.string() + suffix};

  auto absolute = [](const char *variable) -> std::filesystem::path {
    const char *value = std::getenv(variable);
    return value && value[0] == '/' ? value : "";
  };
  std::filesystem::path cache = absolute("XDG_CACHE_HOME");
  if (cache.empty() && !absolute("HOME").empty())
    cache = absolute("HOME") / ".cache";
  if (!cache.empty()) {
    char hash[17];
    std::snprintf(hash, sizeof hash, "%016llx",
                  static_cast<unsigned long long>(contentHash(
                      module.native().data(), module.native().size())));
    places.push_back(
        (cache / "prefill" / (module.filename().string() + "-" + hash + suffix))
            .string());
  }
  return places;
}

void prefill::rt::makeWeightsCacheDirectory(const std::string &place) {
  std::filesystem::path directory = std::filesystem::path(place).parent_path();
  ::mkdir(directory.parent_path().c_str(), 0700);
  ::mkdir(directory.c_str(), 0700);
}
