#include "cuda/CodeModule.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <charconv>

using namespace prefill::rt;
using namespace prefill::rt::cuda;

namespace {

struct Chip {
  int number;
  bool exact; ///< sm_90a: for no other chip
};

std::optional<Chip> parseChip(std::string_view name) {
  if (!name.starts_with("sm_"))
    return std::nullopt;
  name.remove_prefix(3);
  bool exact = name.ends_with('a');
  if (exact)
    name.remove_suffix(1);
  int number = 0;
  auto [end, problem] =
      std::from_chars(name.data(), name.data() + name.size(), number);
  if (problem != std::errc() || end != name.data() + name.size() || number < 10)
    return std::nullopt;
  return Chip{number, exact};
}

std::string nameOf(const CodeImage &image) {
  return (image.format == CodeImage::Format::cubin ? "cubin " : "ptx ") +
         std::string(image.chip);
}

/// The lower the better; none where the image does not run on the chip.
std::optional<int> rank(const CodeImage &image, int chip) {
  std::optional<Chip> made = parseChip(image.chip);
  if (!made || made->number > chip || (made->exact && made->number != chip))
    return std::nullopt;
  int distance = chip - made->number;
  if (image.format == CodeImage::Format::ptx)
    return 1000 + distance;
  if (distance == 0)
    return made->exact ? 0 : 1;
  if (made->number / 10 == chip / 10)
    return 2000 + distance;
  return std::nullopt;
}

/// A log of the driver's compiler in one line.
std::string oneLine(std::string_view log) {
  std::string line;
  for (char c : log.substr(0, log.find('\0'))) {
    if (c == '\n' || c == '\r' || c == '\t')
      c = ' ';
    if (c != ' ' || (!line.empty() && line.back() != ' '))
      line += c;
  }
  if (line.ends_with(' '))
    line.pop_back();
  return line;
}

Result<CUmodule> loadImage(const CudaDevice &device, const CodeImage &image) {
  CurrentContext current(device);
  CUmodule module = nullptr;
  std::string what = "cuModuleLoadDataEx, " + nameOf(image);
  if (image.format == CodeImage::Format::cubin) {
    CUresult result = device.api().moduleLoadDataEx(&module, image.bytes.data(),
                                                    0, nullptr, nullptr);
    if (result != CUDA_SUCCESS)
      return device.api().error(result, what);
    return module;
  }
  std::string text(image.bytes); // the driver looks for a zero at its end
  std::string log(4096, '\0');
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER,
                            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log.data(), reinterpret_cast<void *>(log.size() - 1)};
  CUresult result =
      device.api().moduleLoadDataEx(&module, text.c_str(), 2, options, values);
  if (result == CUDA_SUCCESS)
    return module;
  Error error = device.api().error(result, what);
  if (std::string line = oneLine(log); !line.empty())
    error.message += ": " + quote(line);
  return error;
}

} // namespace

std::optional<int> prefill::rt::cuda::chipNumber(std::string_view chip) {
  std::optional<Chip> parsed = parseChip(chip);
  if (!parsed)
    return std::nullopt;
  return parsed->number;
}

std::string prefill::rt::cuda::listImages(std::span<const CodeImage> images) {
  std::string list;
  for (const CodeImage &image : images)
    list += (list.empty() ? "" : ", ") + nameOf(image);
  return list.empty() ? "nothing" : list;
}

std::vector<const CodeImage *>
prefill::rt::cuda::suitableImages(std::span<const CodeImage> images, int chip) {
  std::vector<std::pair<int, const CodeImage *>> ranked;
  for (const CodeImage &image : images)
    if (std::optional<int> place = rank(image, chip))
      ranked.emplace_back(*place, &image);
  std::sort(ranked.begin(), ranked.end());
  std::vector<const CodeImage *> suitable;
  for (const auto &[place, image] : ranked)
    suitable.push_back(image);
  return suitable;
}

Result<CodeModule> CodeModule::load(const CudaDevice &device,
                                    std::span<const CodeImage> images) {
  std::optional<Error> first;
  int chip = device.properties().chip;
  for (const CodeImage *image : suitableImages(images, chip)) {
    Result<CUmodule> module = loadImage(device, *image);
    if (module)
      return CodeModule(device, *module, nameOf(*image));
    if (!first)
      first = module.takeError();
  }
  if (first)
    return *first;
  return Error{ErrorCode::unsupported,
               "the module has no code for sm_" + std::to_string(chip) + " (" +
                   device.properties().name + "), it has " +
                   quote(listImages(images))};
}

CodeModule::CodeModule(CodeModule &&other) noexcept
    : owner(other.owner), module(std::exchange(other.module, nullptr)),
      name(std::move(other.name)) {}

CodeModule &CodeModule::operator=(CodeModule &&other) noexcept {
  std::swap(owner, other.owner);
  std::swap(module, other.module);
  std::swap(name, other.name);
  return *this;
}

CodeModule::~CodeModule() {
  if (!module)
    return;
  CurrentContext current(*owner);
  owner->api().moduleUnload(module);
}
