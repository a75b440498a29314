#include "cuda/CudaBackend.h"
#include "core/PlanChoice.h"
#include "cuda/CodeModule.h"
#include "cuda/CudaStream.h"
#include "cuda/Warning.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <utility>
#include <vector>

using namespace prefill;
using namespace prefill::rt;
using namespace prefill::rt::cuda;

namespace {

class CudaCode : public LoadedCode {
public:
  CudaCode(const module::Plan &plan, CodeModule code,
           std::vector<KernelFunction> functions,
           std::vector<ScheduleProducts> products,
           std::shared_ptr<const BlasApi> blas, BlasAlgorithmCache *algorithms)
      : LoadedCode(plan), code(std::move(code)),
        functions(std::move(functions)), products(std::move(products)),
        blas(std::move(blas)), algorithms(algorithms) {}

  std::string variant() const override { return code.loaded(); }
  Result<std::unique_ptr<Stream>> createStream(Allocator &allocator) override {
    Result<std::unique_ptr<CudaStream>> stream = CudaStream::create(
        {code.device(), functions, products, blas, algorithms}, allocator);
    if (!stream)
      return stream.takeError();
    return std::unique_ptr<Stream>(std::move(*stream));
  }

private:
  CodeModule code;
  std::vector<KernelFunction> functions;  ///< as the plan's kernels
  std::vector<ScheduleProducts> products; ///< as its schedules
  std::shared_ptr<const BlasApi> blas;    ///< null: absent, or of no use
  BlasAlgorithmCache *algorithms;
};

std::string_view viewOf(const flatbuffers::Vector<uint8_t> &bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

/// What the driver can load of a plan.
std::vector<CodeImage> imagesOf(const module::Plan &plan) {
  std::vector<CodeImage> images;
  for (const module::Code *code : *plan.code())
    if (code->format() == module::CodeFormat::cubin ||
        code->format() == module::CodeFormat::ptx)
      images.push_back(CodeImage{
          code->format() == module::CodeFormat::cubin ? CodeImage::Format::cubin
                                                      : CodeImage::Format::ptx,
          code->variant()->string_view(), viewOf(*code->object())});
  return images;
}

/// Tiles are made for a chip: its own plan first, then that of the newest chip
/// before it.
const module::Plan *choosePlan(const module::Module &file, int chip) {
  const module::Plan *best = nullptr;
  int bestChip = 0;
  for (const module::Plan *plan : *file.plans()) {
    if (plan->target()->string_view() != "cuda")
      continue;
    std::optional<int> made = chipNumber(plan->chip()->string_view());
    if (made && *made <= chip && *made > bestChip &&
        !suitableImages(imagesOf(*plan), chip).empty()) {
      best = plan;
      bestChip = *made;
    }
  }
  return best;
}

} // namespace

Result<std::unique_ptr<Backend>> CudaBackend::create(const std::string &name,
                                                     const CudaPlaces &places) {
  Result<std::unique_ptr<CudaDevice>> gpu =
      CudaDevice::create(name, places.driver);
  if (!gpu)
    return gpu.takeError();
  Result<std::unique_ptr<CudaMemory>> memory = CudaMemory::create(**gpu);
  if (!memory) {
    Error error = memory.takeError();
    error.message = "device " + quote(name) + ": " + error.message;
    return error;
  }
  return std::unique_ptr<Backend>(
      new CudaBackend(std::move(*gpu), std::move(*memory), places));
}

void CudaBackend::openBlas() {
  std::lock_guard<std::mutex> lock(mutex);
  if (std::exchange(blasSought, true))
    return;
  Result<std::shared_ptr<const BlasApi>> library = BlasApi::load(places.blas);
  if (!library)
    return; // our own kernels do its part
  blas = std::move(*library);
  std::string warning;
  algorithms = BlasAlgorithmCache::read(places.algorithms, warning);
  if (!warning.empty())
    warn(warning);
}

Result<std::unique_ptr<LoadedCode>>
CudaBackend::load(const module::Module &file) {
  int chip = gpu->properties().chip;
  const module::Plan *plan = choosePlan(file, chip);
  if (!plan)
    return Error{ErrorCode::unsupported,
                 "the module has no code for cuda:sm_" + std::to_string(chip) +
                     " (" + gpu->properties().name + "), it has " +
                     quote(listCode(file))};
  Result<CodeModule> code = CodeModule::load(*gpu, imagesOf(*plan));
  if (!code)
    return code.takeError();
  std::vector<KernelFunction> functions;
  for (const module::Kernel *kernel : *plan->kernels()) {
    const module::CudaResources &cuda = *kernel->cuda();
    Result<KernelFunction> function = KernelFunction::create(
        *code, {kernel->name()->str(), kernel->num_words(),
                cuda.block_threads(), cuda.shared_bytes()});
    if (!function)
      return function.takeError();
    functions.push_back(std::move(*function));
  }
  std::vector<ScheduleProducts> products = findProducts(*plan);
  bool wanted = std::any_of(
      products.begin(), products.end(), [](const ScheduleProducts &schedule) {
        return std::any_of(schedule.begin(), schedule.end(),
                           [](const auto &product) { return !!product; });
      });
  Result<bool> allowed = BlasApi::allowed();
  if (!allowed)
    return allowed.takeError();
  wanted = wanted && *allowed;
  if (wanted)
    openBlas();
  return std::unique_ptr<LoadedCode>(new CudaCode(
      *plan, std::move(*code), std::move(functions), std::move(products),
      wanted ? blas : nullptr, algorithms ? &*algorithms : nullptr));
}
