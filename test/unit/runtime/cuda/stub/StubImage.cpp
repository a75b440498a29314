#include "StubImage.h"

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <string_view>

using namespace prefill::test::stub;

namespace {

template <typename T> T readAt(const char *data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

/// The records of a section .nv.info.KERNEL: what ptxas says of a kernel.
void parseKernelInfo(std::string_view records, EntryPoint &entry) {
  constexpr unsigned char sized = 4, kernelParameter = 0x17,
                          requiredThreads = 0x10, maximumThreads = 0x05;
  std::map<uint32_t, uint64_t> bytesOf;
  while (records.size() >= 4) {
    unsigned char format = static_cast<unsigned char>(records[0]),
                  attribute = static_cast<unsigned char>(records[1]);
    uint16_t size = format == sized ? readAt<uint16_t>(records.data() + 2) : 0;
    const char *value = records.data() + 4;
    if (records.size() < 4u + size)
      break;
    if (format == sized && attribute == kernelParameter && size >= 12) {
      uint16_t ordinal = readAt<uint16_t>(value + 4);
      bytesOf[ordinal] = readAt<uint32_t>(value + 8) >> 18;
    } else if (format == sized && size >= 12 &&
               (attribute == requiredThreads || attribute == maximumThreads)) {
      entry.maxThreads = static_cast<int>(readAt<uint32_t>(value) *
                                          readAt<uint32_t>(value + 4) *
                                          readAt<uint32_t>(value + 8));
    }
    records.remove_prefix(4u + size);
  }
  for (const auto &[ordinal, bytes] : bytesOf)
    entry.parameterBytes.push_back(bytes);
}

std::optional<Image> parseCubin(const char *data) {
  auto header = readAt<Elf64_Ehdr>(data);
  constexpr int emCuda = 190;
  if (header.e_machine != emCuda || header.e_shentsize != sizeof(Elf64_Shdr))
    return std::nullopt;
  Image image;
  // Version 8 of the ABI (CUDA 13) has the chip one byte further up.
  image.chip = header.e_ident[EI_ABIVERSION] >= 8 ? header.e_flags >> 8 & 0xff
                                                  : header.e_flags & 0xff;
  auto section = [&](int index) {
    return readAt<Elf64_Shdr>(data + header.e_shoff +
                              index * sizeof(Elf64_Shdr));
  };
  const char *names = data + section(header.e_shstrndx).sh_offset;
  constexpr std::string_view text = ".text.", info = ".nv.info.",
                             shared = ".nv.shared.";
  for (int i = 0; i < header.e_shnum; ++i)
    if (std::string_view name = names + section(i).sh_name;
        name.starts_with(text))
      image.entries[std::string(name.substr(text.size()))];
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr about = section(i);
    std::string_view name = names + about.sh_name;
    for (auto &[kernel, entry] : image.entries) {
      if (name.starts_with(info) && name.substr(info.size()) == kernel)
        parseKernelInfo({data + about.sh_offset, about.sh_size}, entry);
      if (name.starts_with(shared) && name.substr(shared.size()) == kernel)
        entry.staticShared = static_cast<int64_t>(about.sh_size);
    }
  }
  return image;
}

int numberAfter(std::string_view text, std::string_view word) {
  size_t at = text.find(word);
  if (at == std::string_view::npos)
    return 0;
  int number = 0;
  for (char c : text.substr(at + word.size())) {
    if (c >= '0' && c <= '9')
      number = number * 10 + (c - '0');
    else if (c != ' ' || number)
      break;
  }
  return number;
}

std::optional<Image> parsePtx(std::string_view text) {
  if (text.find(".version") == std::string_view::npos)
    return std::nullopt;
  Image image;
  image.isPtx = true;
  image.chip = numberAfter(text, ".target sm_");
  constexpr std::string_view word = ".entry ";
  for (size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at)) {
    at += word.size();
    size_t open = text.find('(', at), close = text.find(')', at),
           body = text.find('{', at);
    if (open == std::string_view::npos || close == std::string_view::npos ||
        body == std::string_view::npos)
      return std::nullopt;
    std::string name(text.substr(at, open - at));
    name.erase(std::remove_if(name.begin(), name.end(),
                              [](char c) { return c == ' ' || c == '\n'; }),
               name.end());
    EntryPoint &entry = image.entries[name];
    std::string_view parameters = text.substr(open, close - open);
    for (size_t p = parameters.find(".param "); p != std::string_view::npos;
         p = parameters.find(".param ", p + 1)) {
      std::string_view type = parameters.substr(p + 7);
      bool wide = type.starts_with(".u64") || type.starts_with(".b64") ||
                  type.starts_with(".s64");
      entry.parameterBytes.push_back(wide ? 8 : 4);
    }
    std::string_view directives = text.substr(close, body - close);
    for (std::string_view directive : {".reqntid", ".maxntid"})
      if (int threads = numberAfter(directives, directive))
        entry.maxThreads = threads;
  }
  return image;
}

} // namespace

std::optional<Image> prefill::test::stub::parseImage(const void *data) {
  const char *bytes = static_cast<const char *>(data);
  if (std::memcmp(bytes, ELFMAG, SELFMAG) == 0)
    return parseCubin(bytes);
  return parsePtx(bytes);
}
