// GEMM rows: the fused kernels of a model of few layers, each where the plan
// has it.
#include "Group.h"
#include "LoadedModel.h"
#include "Machine.h"
#include "MatmulPeer.h"

#include <algorithm>
#include <chrono>
#include <map>

using namespace prefill;
using namespace prefill::bench;
using prefill::rt::Error;
using prefill::rt::ErrorCode;

namespace {

/// A vocabulary this small costs nothing and changes no projection.
constexpr int64_t smallVocab = 1024;
constexpr int64_t maxTokens = 4096;

/// So many that a projection's weights have left the last cache when its turn
/// comes again, and one more: most of the last layer runs on selected rows.
int64_t chooseLayers(const ModelShape &shape, const std::string &dtype) {
  int64_t layerBytes = layerParameters(shape) * byteSize(dtype);
  int64_t beyondCache = 2 * int64_t(cacheSizes().l3) / layerBytes + 2;
  return std::clamp<int64_t>(beyondCache, 2, shape.layers);
}

class GemmGroup : public Group {
public:
  GemmGroup(PeakProbe &probe, std::unique_ptr<LoadedModel> model, Peak peak)
      : probe(probe), model(std::move(model)), denominator(peak) {}

  Peak peak(const Row &) const override { return denominator; }
  const char *variant() const override {
    return rt::stringify(model->variant());
  }
  std::string peerNote(const Row &row) const override {
    auto found = notes.find(row.name);
    return found == notes.end() ? "" : found->second;
  }

  Result<void> prepare(const std::vector<Row> &rows) {
    for (const Row &row : rows) {
      std::unique_ptr<PlanWalk> &walk = walks[row.tokens];
      if (!walk) {
        auto made = PlanWalk::create(*model, row.tokens);
        if (!made)
          return made.takeError();
        walk = std::move(*made);
      }
      if (row.peer) {
        auto peer = MatmulPeer::create(row.dtype, row.tokens, row.projection.n,
                                       row.projection.k, probe.threads());
        if (peer)
          peers[row.name] = std::move(*peer);
        else
          notes[row.name] = peer.error().message;
      }
      Result<Sample> warmUp = run(row);
      if (!warmUp)
        return warmUp.takeError();
    }
    return {};
  }

  Result<Sample> run(const Row &row) override {
    PlanWalk &walk = *walks.at(row.tokens);
    std::optional<double> quantizeSeconds;
    if (row.dtype == "int8") {
      Result<double> seconds = quantize(walk, row.projection);
      if (!seconds)
        return seconds.takeError();
      quantizeSeconds = *seconds;
    }
    if (Result<uint32_t> found = walk.seek(row.projection.launch); !found)
      return found.takeError();
    PeakProbe::Timing timing = probe.time(
        denominator, [&] { walk.runHere(); },
        secondPeak(row.dtype, model->variant()));
    walk.advance();
    Sample sample{timing.seconds, row.flops(), timing.peak, timing.cpuShare};
    sample.secondPeak = timing.secondPeak;
    sample.quantizeSeconds = quantizeSeconds;
    if (auto peer = peers.find(row.name); peer != peers.end()) {
      PeakProbe::Timing other =
          probe.time(denominator, [&] { peer->second->run(); });
      peer->second->settle();
      sample.peerSeconds = other.seconds;
      sample.peerPeak = other.peak;
    }
    return sample;
  }

private:
  /// Runs the launch that makes the integers of a projection's input, the one
  /// right before it, and returns its seconds. It has no row and no probe of
  /// its own: a stream from memory would take its input out of the caches,
  /// where the model has it.
  static Result<double> quantize(PlanWalk &walk, const Projection &projection) {
    if (Result<uint32_t> found =
            walk.seek(std::string("quantize_") + projection.launch);
        !found)
      return found.takeError();
    auto start = std::chrono::steady_clock::now();
    walk.runHere();
    std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - start;
    walk.advance();
    return seconds.count();
  }

  PeakProbe &probe;
  std::unique_ptr<LoadedModel> model;
  Peak denominator;
  std::map<int64_t, std::unique_ptr<PlanWalk>> walks; ///< by tokens
  std::map<std::string, std::unique_ptr<MatmulPeer>> peers;
  std::map<std::string, std::string> notes;
};

} // namespace

Result<std::unique_ptr<Group>>
prefill::bench::createGemmGroup(const std::vector<Row> &rows,
                                ModuleStore &store, PeakProbe &probe) {
  const Row &first = rows.front();
  ModuleSpec spec{first.shape,  chooseLayers(*first.shape, first.dtype),
                  smallVocab,   first.dtype,
                  first.layout, std::min(maxTokens, first.shape->maxSeq)};
  Result<std::string> path = store.get(spec);
  if (!path)
    return path.takeError();
  auto model = LoadedModel::load(*path, first.isa, probe.threads());
  if (!model)
    return model.takeError();
  const module::Module &file = (*model)->file();
  if (file.hidden_size() != first.shape->hidden ||
      file.num_q_heads() != first.shape->qHeads ||
      file.kv_cache()->num_kv_heads() != first.shape->kvHeads ||
      file.kv_cache()->head_dim_qk() != first.shape->headDim)
    return Error{ErrorCode::invalidModule,
                 "'" + *path + "' is not a module of " + first.shape->name +
                     ": its hidden size or heads differ"};
  Peak peak = arithmeticPeak(first.dtype, (*model)->variant());
  auto group = std::make_unique<GemmGroup>(probe, std::move(*model), peak);
  if (Result<void> ok = group->prepare(rows); !ok)
    return ok.takeError();
  return std::unique_ptr<Group>(std::move(group));
}
