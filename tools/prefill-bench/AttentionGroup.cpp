// Attention rows: the attention of a layer that is not the last, which selects
// rows, over what the model's own QKV projection has written.
#include "Group.h"
#include "LoadedModel.h"

#include <algorithm>
#include <map>

using namespace prefill;
using namespace prefill::bench;

namespace {

class AttentionGroup : public Group {
public:
  explicit AttentionGroup(PeakProbe &probe) : probe(probe) {}

  Peak peak(const Row &) const override { return denominator; }
  const char *variant() const override {
    return rt::stringify(models.front().second->variant());
  }

  Result<void> prepare(const std::vector<Row> &rows, ModuleStore &store) {
    for (const Row &row : rows) {
      auto model = modelOf(row, store);
      if (!model)
        return model.takeError();
      auto walk = PlanWalk::create(**model, row.tokens);
      if (!walk)
        return walk.takeError();
      // Attention reads the queries and the cache and overwrites neither: it
      // can run again and again where the walk stops.
      if (Result<uint32_t> found = (*walk)->seek("attention"); !found)
        return found.takeError();
      (*walk)->runHere();
      walks[row.name] = std::move(*walk);
    }
    return {};
  }

  Result<Sample> run(const Row &row) override {
    PlanWalk &walk = *walks.at(row.name);
    PeakProbe::Timing timing = probe.time(
        denominator, [&] { walk.runHere(); },
        secondPeak(row.dtype, models.front().second->variant()));
    Sample sample{timing.seconds, row.flops(), timing.peak, timing.cpuShare};
    sample.secondPeak = timing.secondPeak;
    return sample;
  }

private:
  /// The model over the row's layout. Layouts beyond the first take the first
  /// one's weights, which are the same.
  Result<LoadedModel *> modelOf(const Row &row, ModuleStore &store) {
    for (auto &[layout, model] : models)
      if (layout == row.layout)
        return model.get();
    constexpr int64_t smallVocab = 1024;
    const int64_t maxTokens = std::min<int64_t>(8192, row.shape->maxSeq);
    Result<std::string> path =
        store.get({row.shape, 2, smallVocab, row.dtype, row.layout, maxTokens});
    if (!path)
      return path.takeError();
    auto model = models.empty()
                     ? LoadedModel::load(*path, row.isa, probe.threads())
                     : LoadedModel::loadBeside(*models.front().second, *path);
    if (!model)
      return model.takeError();
    denominator = arithmeticPeak(row.dtype, (*model)->variant());
    models.emplace_back(row.layout, std::move(*model));
    return models.back().second.get();
  }

  PeakProbe &probe;
  /// By layout; the first has the weights of all.
  std::vector<std::pair<std::string, std::unique_ptr<LoadedModel>>> models;
  Peak denominator = {};
  std::map<std::string, std::unique_ptr<PlanWalk>> walks;
};

} // namespace

Result<std::unique_ptr<Group>>
prefill::bench::createAttentionGroup(const std::vector<Row> &rows,
                                     ModuleStore &store, PeakProbe &probe) {
  auto group = std::make_unique<AttentionGroup>(probe);
  if (Result<void> ok = group->prepare(rows, store); !ok)
    return ok.takeError();
  return std::unique_ptr<Group>(std::move(group));
}
