// Startup rows: from a module and a checkpoint on disk to the logits of one
// token, without and with the file of packed weights that the first start
// leaves behind.
#include "Group.h"
#include "Interruption.h"
#include "LoadedModel.h"
#include "RandomCheckpoint.h"
#include "core/TensorSource.h"
#include "core/WeightsCache.h"
#include "prefill/checkpoint/Quote.h"

#include <chrono>
#include <filesystem>

using namespace prefill;
using namespace prefill::bench;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::quote;

namespace {

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class StartupGroup : public Group {
public:
  StartupGroup(std::unique_ptr<rt::Device> device, std::string module,
               std::string checkpoint, double compileSeconds,
               std::string variant)
      : device(std::move(device)), module(std::move(module)),
        checkpoint(std::move(checkpoint)), packed(this->checkpoint + ".packed"),
        compileSeconds(compileSeconds), chosenVariant(std::move(variant)) {}

  Peak peak(const Row &) const override { return Peak::firstStart; }
  const char *variant() const override { return chosenVariant.c_str(); }

  Result<Sample> run(const Row &) override {
    std::error_code ignored;
    std::filesystem::remove(packed.path(), ignored);
    double first = 0, second = 0;
    for (double *seconds : {&first, &second})
      if (Result<void> ok = start(*seconds, seconds == &first); !ok)
        return ok.takeError();
    Sample sample{second, 1, 1 / first, 1};
    sample.compileSeconds = compileSeconds;
    return sample;
  }

private:
  /// `writes`: leaves the packed weights behind, after the time is taken.
  Result<void> start(double &seconds, bool writes) {
    double begin = now();
    auto loaded = rt::LoadedModule::loadFile(*device, module);
    if (!loaded)
      return loaded.takeError();
    rt::LoadedModule &file = **loaded;
    auto source = rt::CheckpointSource::open(checkpoint, file.file());
    if (!source)
      return source.takeError();
    auto cache = rt::WeightsCache::create(file, *source, packed.path());
    if (!cache)
      return cache.takeError();
    auto weights = cache->load(false, nullptr);
    if (weights && bool(*weights) == writes)
      return Error{ErrorCode::io, "packed weights " + quote(packed.path()) +
                                      (writes ? " are there before the first"
                                              : " are not used by the second") +
                                      " start"};
    if (weights && writes)
      weights = rt::ResidentWeights::load(file, *source, nullptr);
    if (!weights)
      return weights.takeError();
    auto kv = rt::KVCache::create(file, 1, 1);
    if (!kv)
      return kv.takeError();
    auto session = rt::Session::create(file, **weights, **kv);
    if (!session)
      return session.takeError();
    int32_t token = 1, cuSeqlens[] = {0, 1}, sequence = 0;
    std::vector<float> logits(file.file().vocab_size());
    if (Result<void> ok = (*session)->run(&token, cuSeqlens, &sequence, 1,
                                          false, logits.data());
        !ok)
      return ok;
    seconds = now() - begin;
    return writes ? cache->write(**weights, nullptr) : Result<void>();
  }

  std::unique_ptr<rt::Device> device;
  std::string module, checkpoint;
  TemporaryFile packed;
  double compileSeconds;
  std::string chosenVariant;
};

} // namespace

Result<std::unique_ptr<Group>>
prefill::bench::createStartupGroup(const std::vector<Row> &rows,
                                   ModuleStore &store, PeakProbe &probe) {
  const Row &first = rows.front();
  const ModelShape &shape = *first.shape;
  ModuleSpec spec{&shape,      shape.layers, shape.vocab,
                  first.dtype, first.layout, shape.maxSeq};
  double compileSeconds = 0;
  Result<std::string> path = store.compile(spec, &compileSeconds);
  if (!path)
    return path.takeError();
  auto device = rt::Device::create(
      first.isa.empty() ? "cpu" : "cpu:" + first.isa, probe.threads());
  if (!device)
    return device.takeError();
  // Rows of every dtype start from the same files.
  std::string checkpoint =
      store.place(std::string("checkpoint-") + shape.name + "-bf16");
  std::string variant;
  {
    auto loaded = rt::LoadedModule::loadFile(**device, *path);
    if (!loaded)
      return loaded.takeError();
    variant = (*loaded)->code().variant();
    if (Result<void> ok = writeRandomCheckpoint(checkpoint, **loaded); !ok)
      return ok.takeError();
  }
  return std::unique_ptr<Group>(std::make_unique<StartupGroup>(
      std::move(*device), *path, checkpoint, compileSeconds, variant));
}
