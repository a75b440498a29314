#include "core/CpuQuota.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <string_view>

using namespace prefill::rt;

namespace {

std::string readFile(const std::string &path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)),
                   std::istreambuf_iterator<char>());
  while (!text.empty() && text.back() == '\n')
    text.pop_back();
  return text;
}

/// Nothing for "max", for -1, which is no quota in version 1, and for whatever
/// else is no number above 0.
std::optional<int64_t> parsePositive(std::string_view text) {
  int64_t value = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value <= 0)
    return std::nullopt;
  return value;
}

class Least {
public:
  /// Two times in microseconds, as files have them.
  void addGroup(std::string_view quotaText, std::string_view periodText) {
    std::optional<int64_t> quota = parsePositive(quotaText),
                           period = parsePositive(periodText);
    if (!quota || !period)
      return;
    int64_t processors = *quota / *period + (*quota % *period != 0 ? 1 : 0);
    auto most = static_cast<int64_t>(std::numeric_limits<int>::max());
    auto limit = static_cast<int>(std::min(processors, most));
    value = std::min(value.value_or(limit), limit);
  }

  std::optional<int> value;
};

void addVersion2(const std::string &directory, Least &least) {
  std::string text = readFile(directory + "/cpu.max");
  if (size_t space = text.find(' '); space != std::string::npos)
    least.addGroup(std::string_view(text).substr(0, space),
                   std::string_view(text).substr(space + 1));
}

void addVersion1(const std::string &directory, Least &least) {
  least.addGroup(readFile(directory + "/cpu.cfs_quota_us"),
                 readFile(directory + "/cpu.cfs_period_us"));
}

/// The group `path` of a hierarchy mounted at `mount`, and all around it.
template <typename AddGroup>
void addPath(const std::string &mount, std::string path, AddGroup addGroup,
             Least &least) {
  // A group outside of what the mount shows: "/../other".
  if ((path + "/").find("/../") != std::string::npos)
    path.clear();
  while (!path.empty()) {
    if (path.back() != '/')
      addGroup(mount + path, least);
    path.erase(path.back() == '/' ? path.size() - 1 : path.rfind('/'));
  }
  addGroup(mount, least);
}

bool listContains(const std::string &list, const std::string &word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

} // namespace

std::optional<int> prefill::rt::cpuQuota(const std::string &root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  const std::string mount = root + "/sys/fs/cgroup";
  Least least;
  // number:controllers:path; version 2 names no controllers.
  for (std::string line; std::getline(groups, line);) {
    size_t first = line.find(':');
    size_t second =
        first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line[second + 1] != '/')
      continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      addPath(mount, path, addVersion2, least);
      // Beside hierarchies of version 1.
      addPath(mount + "/unified", path, addVersion2, least);
    } else if (listContains(controllers, "cpu")) {
      addPath(mount + "/cpu", path, addVersion1, least);
      // Where the link of the one name is missing.
      if (controllers != "cpu")
        addPath(mount + "/" + controllers, path, addVersion1, least);
    }
  }
  return least.value;
}
