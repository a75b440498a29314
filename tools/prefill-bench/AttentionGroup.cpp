// Attention rows: the attention of a layer that is not the last, which selects
// rows, over what the model's own QKV projection has written.
#include "Group.h"
#include "LoadedModel.h"

#include <map>

using namespace prefill;
using namespace prefill::bench;

namespace {

class AttentionGroup : public Group {
public:
  AttentionGroup(PeakProbe &probe, std::unique_ptr<LoadedModel> model,
                 Peak peak)
      : probe(probe), model(std::move(model)), denominator(peak) {}

  Peak peak(const Row &) const override { return denominator; }
  const char *variant() const override {
    return rt::stringify(model->variant());
  }

  Result<void> prepare(const std::vector<Row> &rows) {
    for (const Row &row : rows) {
      auto walk = PlanWalk::create(*model, row.tokens);
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
    PeakProbe::Timing timing = probe.time(denominator, [&] { walk.runHere(); });
    return Sample{timing.seconds, row.flops(), timing.peak, timing.cpuShare};
  }

private:
  PeakProbe &probe;
  std::unique_ptr<LoadedModel> model;
  Peak denominator;
  std::map<std::string, std::unique_ptr<PlanWalk>> walks;
};

} // namespace

Result<std::unique_ptr<Group>>
prefill::bench::createAttentionGroup(const std::vector<Row> &rows,
                                     ModuleStore &store, PeakProbe &probe) {
  const Row &first = rows.front();
  constexpr int64_t smallVocab = 1024, maxTokens = 8192;
  Result<std::string> path = store.get(
      {first.shape, 2, smallVocab, first.dtype, first.layout, maxTokens});
  if (!path)
    return path.takeError();
  auto model = LoadedModel::load(*path, first.isa, probe.threads());
  if (!model)
    return model.takeError();
  Peak peak = arithmeticPeak(first.dtype, (*model)->variant());
  auto group = std::make_unique<AttentionGroup>(probe, std::move(*model), peak);
  if (Result<void> ok = group->prepare(rows); !ok)
    return ok.takeError();
  return std::unique_ptr<Group>(std::move(group));
}
