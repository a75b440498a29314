// Rows of a whole model: prefill of a prompt, and one step of decoding after
// it.
#include "Group.h"
#include "LoadedModel.h"

#include <algorithm>
#include <map>

using namespace prefill;
using namespace prefill::bench;

namespace {

class ModelGroup : public Group {
public:
  ModelGroup(PeakProbe &probe, std::unique_ptr<LoadedModel> model, Peak peak)
      : probe(probe), model(std::move(model)), arithmetic(peak) {}

  Peak peak(const Row &row) const override {
    return row.kind == RowKind::decode ? Peak::readBandwidth : arithmetic;
  }
  const char *variant() const override {
    return rt::stringify(model->variant());
  }

  Result<void> prepare(const std::vector<Row> &rows) {
    logits.resize(model->file().vocab_size());
    int64_t longest = 0;
    for (const Row &row : rows)
      longest = std::max(longest, row.tokens);
    prompt = makeTokens(longest + 1, model->file().vocab_size());
    if (Result<void> ok = open(prefills, longest); !ok)
      return ok;
    // Maps the weights; a row's own length only where that is short.
    for (const Row &row : rows)
      if (row.kind == RowKind::model && row.tokens <= 1024)
        if (Result<Sample> warmUp = run(row); !warmUp)
          return warmUp.takeError();
    for (const Row &row : rows) {
      if (row.kind != RowKind::decode)
        continue;
      LoadedModel::Run &decode = decodes[row.tokens];
      if (Result<void> ok = open(decode, row.tokens + 1); !ok)
        return ok;
      if (Result<void> ok = append(decode, 0, row.tokens); !ok)
        return ok;
      if (Result<Sample> warmUp = run(row); !warmUp)
        return warmUp.takeError();
    }
    return {};
  }

  Result<Sample> run(const Row &row) override {
    bool decode = row.kind == RowKind::decode;
    LoadedModel::Run &chosen = decode ? decodes.at(row.tokens) : prefills;
    int64_t begin = decode ? row.tokens : 0;
    int64_t end = decode ? row.tokens + 1 : row.tokens;
    if (Result<void> ok = chosen.cache->truncate(0, begin); !ok)
      return ok.takeError();
    Result<void> result;
    PeakProbe::Timing timing = probe.time(
        peak(row), [&] { result = append(chosen, begin, end); },
        decode ? std::nullopt : secondPeak(row.dtype, model->variant()));
    if (!result)
      return result.takeError();
    double work = decode ? bytesOfStep(end) : double(chosen.session->flops());
    Sample sample{timing.seconds, work, timing.peak, timing.cpuShare};
    sample.secondPeak = timing.secondPeak;
    return sample;
  }

private:
  Result<void> open(LoadedModel::Run &run, int64_t capacity) {
    Result<LoadedModel::Run> made = model->makeRun(capacity);
    if (!made)
      return made.takeError();
    run = std::move(*made);
    return {};
  }

  Result<void> append(LoadedModel::Run &run, int64_t begin, int64_t end) {
    int32_t cuSeqlens[] = {0, static_cast<int32_t>(end - begin)}, sequence = 0;
    return run.session->run(prompt.data() + begin, cuSeqlens, &sequence, 1,
                            false, logits.data());
  }

  /// What a step must read: every resident weight once (of the embedding and
  /// of the table of angles one row), and the keys and values of `length`
  /// tokens.
  double bytesOfStep(int64_t length) const {
    const module::Module &file = model->file();
    std::map<uint32_t, bool> read; // weight: whether a layer or the head reads
    double bytes = 0;
    const module::Plan &plan = model->plan();
    for (const module::Launch *launch : *model->schedule(1).launches())
      for (const module::Arg *arg : *launch->args())
        if (arg->kind() == module::ArgKind::weight)
          read[arg->index()] |= model->launchName(*launch) != "embed";
    for (auto [index, whole] : read) {
      const module::Weight &weight = *plan.weights()->Get(index);
      bool rowOnly = !whole || weight.source_type() ==
                                   module::WeightSource::RopeTableSource;
      double size = double(rt::byteSize(weight));
      bytes += rowOnly ? size / double(weight.shape()->Get(0)) : size;
    }
    const module::KVCacheSpec &kv = *file.kv_cache();
    double element = double(rt::byteSize(kv.dtype()));
    return bytes + double(length) * file.num_layers() * kv.num_kv_heads() *
                       (kv.head_dim_qk() + kv.head_dim_v()) * element;
  }

  PeakProbe &probe;
  std::unique_ptr<LoadedModel> model;
  Peak arithmetic;
  LoadedModel::Run prefills;
  /// By the length of the prompt: rows take turns, and a cache that a shorter
  /// one has truncated no longer holds the longer one's prompt.
  std::map<int64_t, LoadedModel::Run> decodes;
  std::vector<int32_t> prompt;
  std::vector<float> logits;
};

} // namespace

Result<std::unique_ptr<Group>>
prefill::bench::createModelGroup(const std::vector<Row> &rows,
                                 ModuleStore &store, PeakProbe &probe) {
  const Row &first = rows.front();
  const ModelShape &shape = *first.shape;
  Result<std::string> path =
      store.get({&shape, shape.layers, shape.vocab, first.dtype, first.layout,
                 shape.maxSeq});
  if (!path)
    return path.takeError();
  auto model = LoadedModel::load(*path, first.isa, probe.threads());
  if (!model)
    return model.takeError();
  Peak peak = arithmeticPeak(first.dtype, (*model)->variant());
  auto group = std::make_unique<ModelGroup>(probe, std::move(*model), peak);
  if (Result<void> ok = group->prepare(rows); !ok)
    return ok.takeError();
  return std::unique_ptr<Group>(std::move(group));
}
