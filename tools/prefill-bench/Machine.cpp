#include "Machine.h"

#include <cctype>
#include <fstream>

using namespace prefill::bench;
using prefill::rt::IsaVariant;

namespace {

/// The first value of a key in /proc/cpuinfo.
std::string cpuInfo(const std::string &key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0 ||
        line.find_first_not_of(" \t", key.size()) != colon)
      continue;
    size_t begin = line.find_first_not_of(' ', colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

/// The size of a data or unified cache of processor 0 as sysfs gives it; 0
/// where it does not. (sysconf multiplies the last cache of some processors by
/// a number of cores that a virtual machine does not have.)
size_t cacheSize(int level) {
  for (int index = 0;; ++index) {
    std::string directory = "/sys/devices/system/cpu/cpu0/cache/index" +
                            std::to_string(index) + "/";
    std::ifstream levelFile(directory + "level"), typeFile(directory + "type"),
        sizeFile(directory + "size");
    int found = 0;
    std::string type;
    size_t kibibytes = 0;
    if (!(levelFile >> found && typeFile >> type && sizeFile >> kibibytes))
      return 0;
    if (found == level && type != "Instruction")
      return kibibytes << 10;
  }
}

} // namespace

CacheSizes prefill::bench::cacheSizes() {
  static const CacheSizes sizes = {cacheSize(1), cacheSize(2), cacheSize(3)};
  return sizes;
}

std::string prefill::bench::cpuName() {
  std::string name = cpuInfo("model name");
  return name.empty() ? "unknown" : name;
}

std::string prefill::bench::cpuSlug() {
  return slugOf(cpuName() + "-" + cpuInfo("cpu family") + "-" +
                cpuInfo("model") + "-" + cpuInfo("stepping"));
}

std::string prefill::bench::slugOf(const std::string &name) {
  std::string slug;
  for (unsigned char c : name)
    if (std::isalnum(c))
      slug += static_cast<char>(std::tolower(c));
    else if (!slug.empty() && slug.back() != '-')
      slug += '-';
  while (!slug.empty() && slug.back() == '-')
    slug.pop_back();
  return slug;
}

IsaVariant prefill::bench::bestVariant() {
  return prefill::rt::chooseVariant([](IsaVariant variant) {
           return variant != IsaVariant::avx_vnni &&
                  variant != IsaVariant::avx512_vnni;
         })
      .value_or(IsaVariant::avx2);
}

IsaVariant prefill::bench::mostCapableVariant() {
  IsaVariant most = IsaVariant::avx2;
  for (IsaVariant variant : prefill::rt::isaVariants)
    if (prefill::rt::hostSupports(variant))
      most = variant;
  return most;
}
