// A module in memory with random weights, and calls of it that are run launch
// by launch.
#ifndef PREFILL_TOOLS_PREFILLBENCH_LOADEDMODEL_H
#define PREFILL_TOOLS_PREFILLBENCH_LOADEDMODEL_H

#include "core/Device.h"
#include "core/KVCache.h"
#include "core/LoadedModule.h"
#include "core/ResidentWeights.h"
#include "core/Session.h"
#include "cpu/IsaVariant.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace prefill::bench {

using rt::Result;

class LoadedModel {
public:
  /// isa: the name of a variant; empty: the best that the host runs.
  static Result<std::unique_ptr<LoadedModel>>
  load(const std::string &path, const std::string &isa, int threads);

  /// On the device of a name, as rt::Device::create takes it.
  static Result<std::unique_ptr<LoadedModel>>
  loadOn(const std::string &device, const std::string &path, int threads);

  /// On the device of another model, which outlives it, with that one's
  /// weights: the same model compiled otherwise.
  static Result<std::unique_ptr<LoadedModel>>
  loadBeside(LoadedModel &other, const std::string &path);

  const module::Module &file() const { return loaded->file(); }
  const module::Plan &plan() const { return loaded->plan(); }
  rt::Backend &backend() const { return device->backend(); }
  /// Of a CPU.
  rt::IsaVariant variant() const {
    return *rt::parseIsaVariant(loaded->code().variant());
  }
  /// Of calls of `tokens` tokens.
  const module::Schedule &schedule(int64_t tokens) const {
    return *plan().schedules()->Get(rt::findSchedule(plan(), tokens));
  }
  std::string launchName(const module::Launch &launch) const;

  /// One session with a cache of its own for one sequence of `capacity` tokens.
  struct Run {
    std::unique_ptr<rt::KVCache> cache;
    std::unique_ptr<rt::Session> session;
  };
  Result<Run> makeRun(int64_t capacity);

private:
  std::shared_ptr<rt::Device> device;
  std::unique_ptr<rt::LoadedModule> loaded;
  std::unique_ptr<rt::ResidentWeights> weights;
};

/// Tokens that differ, all in the vocabulary.
std::vector<int32_t> makeTokens(int64_t count, int64_t vocab);

/// A call of a given number of tokens whose launches are run in the order of
/// the plan, layer after layer and then from the start again. Each finds its
/// inputs in the buffers and the caches as its predecessor left them, and its
/// weights where a whole layer's traffic has left them: as in the model.
class PlanWalk {
public:
  static Result<std::unique_ptr<PlanWalk>> create(LoadedModel &model,
                                                  int64_t tokens);

  /// Runs what lies before the next launch of that name and returns its index,
  /// to be run by runHere(). Only launches of the kernel that the first one of
  /// that name has: the last layer's kernel may differ.
  Result<uint32_t> seek(const std::string &launch);
  /// A CPU's launch does not fail.
  void runHere() { static_cast<void>(run.session->runStaged(position)); }
  /// The launch at hand is done.
  void advance();

private:
  PlanWalk(LoadedModel &model, int64_t tokens)
      : model(model), launches(*model.schedule(tokens).launches()) {}

  LoadedModel &model;
  const flatbuffers::Vector<flatbuffers::Offset<module::Launch>> &launches;
  LoadedModel::Run run;
  uint32_t position = 0;
  uint32_t end = 0; ///< one past the last launch of a layer
};

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_LOADEDMODEL_H
