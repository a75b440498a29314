#include "LoadedModel.h"
#include "core/TensorSource.h"
#include "prefill/checkpoint/Quote.h"

using namespace prefill;
using namespace prefill::bench;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::quote;

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(const std::string &path,
                                                       const std::string &isa,
                                                       int threads) {
  return loadOn(isa.empty() ? "cpu" : "cpu:" + isa, path, threads);
}

Result<std::unique_ptr<LoadedModel>>
LoadedModel::loadOn(const std::string &name, const std::string &path,
                    int threads) {
  std::unique_ptr<LoadedModel> model(new LoadedModel);
  auto device = rt::Device::create(name, threads);
  if (!device)
    return device.takeError();
  model->device = std::move(*device);
  auto loaded = rt::LoadedModule::loadFile(*model->device, path);
  if (!loaded)
    return loaded.takeError();
  model->loaded = std::move(*loaded);
  auto weights =
      rt::ResidentWeights::load(*model->loaded, rt::RandomSource(1), nullptr);
  if (!weights)
    return weights.takeError();
  model->weights = std::move(*weights);
  return model;
}

Result<std::unique_ptr<LoadedModel>>
LoadedModel::loadBeside(LoadedModel &other, const std::string &path) {
  std::unique_ptr<LoadedModel> model(new LoadedModel);
  model->device = other.device;
  auto loaded = rt::LoadedModule::loadFile(*model->device, path);
  if (!loaded)
    return loaded.takeError();
  model->loaded = std::move(*loaded);
  auto weights = rt::ResidentWeights::share(*model->loaded, *other.weights);
  if (!weights)
    return weights.takeError();
  model->weights = std::move(*weights);
  return model;
}

std::string LoadedModel::launchName(const module::Launch &launch) const {
  return launch.name() ? launch.name()->str()
                       : plan().kernels()->Get(launch.kernel())->name()->str();
}

Result<LoadedModel::Run> LoadedModel::makeRun(int64_t capacity) {
  Run run;
  auto cache = rt::KVCache::create(*loaded, 1, capacity);
  if (!cache)
    return cache.takeError();
  run.cache = std::move(*cache);
  auto session = rt::Session::create(*loaded, *weights, *run.cache);
  if (!session)
    return session.takeError();
  run.session = std::move(*session);
  return run;
}

std::vector<int32_t> prefill::bench::makeTokens(int64_t count, int64_t vocab) {
  std::vector<int32_t> tokens(count);
  for (int64_t i = 0; i < count; ++i)
    tokens[i] = static_cast<int32_t>((i * 7919 + 13) % vocab);
  return tokens;
}

Result<std::unique_ptr<PlanWalk>> PlanWalk::create(LoadedModel &model,
                                                   int64_t tokens) {
  std::unique_ptr<PlanWalk> walk(new PlanWalk(model, tokens));
  Result<LoadedModel::Run> run = model.makeRun(tokens);
  if (!run)
    return run.takeError();
  walk->run = std::move(*run);
  std::vector<int32_t> prompt = makeTokens(tokens, model.file().vocab_size());
  int32_t cuSeqlens[] = {0, static_cast<int32_t>(tokens)}, sequence = 0;
  if (Result<void> ok =
          walk->run.session->stage(prompt.data(), cuSeqlens, &sequence, 1);
      !ok)
    return ok.takeError();
  for (uint32_t i = 0; i < walk->launches.size(); ++i)
    if (walk->launches.Get(i)->layer() >= 0)
      walk->end = i + 1;
  // The first layer, and what writes the others' keys and values: memory that
  // the system has yet to hand out would be a part of a launch's time.
  for (uint32_t i = 0; i < walk->end; ++i) {
    const module::Launch &launch = *walk->launches.Get(i);
    if (launch.layer() <= 0 || model.launchName(launch) == "qkv_proj")
      static_cast<void>(walk->run.session->runStaged(i));
  }
  return walk;
}

void PlanWalk::advance() { position = position + 1 == end ? 0 : position + 1; }

Result<uint32_t> PlanWalk::seek(const std::string &name) {
  uint32_t first = 0;
  while (first < end && model.launchName(*launches[first]) != name)
    ++first;
  if (first == end)
    return Error{ErrorCode::invalidModule,
                 "the module has no launch " + quote(name) + " in a layer"};
  auto matches = [&](uint32_t i) {
    return model.launchName(*launches[i]) == name &&
           launches.Get(i)->kernel() == launches.Get(first)->kernel();
  };
  while (!matches(position)) {
    runHere();
    advance();
  }
  return position;
}
