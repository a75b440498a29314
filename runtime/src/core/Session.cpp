#include "core/Session.h"
#include "core/Canary.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <limits>

using namespace prefill;
using namespace prefill::rt;

namespace {

Error invalidArgument(const std::string &message) {
  return Error{ErrorCode::invalidArgument, message};
}

} // namespace

Result<std::unique_ptr<Session>> Session::create(LoadedModule &module,
                                                 ResidentWeights &weights,
                                                 KVCache &cache) {
  if (&weights.module() != &module)
    return invalidArgument("the weights were loaded for another module");
  if (&cache.module() != &module)
    return invalidArgument("the KV cache was made for another module");
  std::unique_ptr<Session> session(new Session(module, weights, cache));
  Result<std::unique_ptr<Stream>> stream =
      module.code().createStream(session->allocator);
  if (!stream)
    return stream.takeError();
  session->stream = std::move(*stream);
  return session;
}

Result<Batch> Session::check(const int32_t *tokens, const int32_t *cuSeqlens,
                             const int32_t *sequences, int64_t numSequences,
                             bool allLogits, const float *logits) const {
  const module::Module &file = module.file();
  if (!tokens || !cuSeqlens || !sequences || !logits)
    return invalidArgument("a pointer is NULL");
  if (numSequences < 1 || numSequences > cache.numSequences())
    return invalidArgument(
        "number of sequences is " + std::to_string(numSequences) +
        ", expected 1 to the cache's " + std::to_string(cache.numSequences()));
  if (cuSeqlens[0] != 0)
    return invalidArgument("cu_seqlens starts with " +
                           std::to_string(cuSeqlens[0]) + ", expected 0");
  std::vector<bool> seen(cache.numSequences());
  for (int64_t i = 0; i < numSequences; ++i) {
    int32_t sequence = sequences[i];
    if (sequence < 0 || sequence >= cache.numSequences())
      return invalidArgument("sequence " + std::to_string(sequence) +
                             ", but the cache has " +
                             std::to_string(cache.numSequences()));
    std::string what = "sequence " + std::to_string(sequence);
    if (seen[sequence])
      return invalidArgument(what + " appears twice in a batch");
    seen[sequence] = true;
    int64_t count = int64_t(cuSeqlens[i + 1]) - cuSeqlens[i];
    if (count < 1)
      return invalidArgument(what + ": the prompt has " +
                             std::to_string(count) +
                             " tokens, expected at least 1");
    int64_t past = cache.length(sequence), total = past + count;
    std::string lengths = what + ": " + std::to_string(count) +
                          " tokens after " + std::to_string(past) +
                          " stored ones exceed ";
    if (total > file.max_seq())
      return invalidArgument(lengths + "the module's maximum length " +
                             std::to_string(file.max_seq()));
    if (total > cache.capacity())
      return invalidArgument(lengths + "the KV cache's capacity " +
                             std::to_string(cache.capacity()));
  }
  for (int32_t row = 0; row < cuSeqlens[numSequences]; ++row)
    if (tokens[row] < 0 || tokens[row] >= file.vocab_size())
      return invalidArgument("token " + std::to_string(tokens[row]) +
                             " at index " + std::to_string(row) +
                             ", expected 0 to vocab_size - 1 = " +
                             std::to_string(file.vocab_size() - 1));
  return Batch{tokens,
               {cuSeqlens, cuSeqlens + numSequences + 1},
               {sequences, sequences + numSequences},
               allLogits};
}

Result<void> Session::prepareScore() {
  int64_t heads = 0;
  for (const module::Launch *launch : *chosen->launches())
    for (const module::Arg *arg : *launch->args())
      if (arg->kind() == module::ArgKind::score)
        heads = std::max<int64_t>(heads, arg->index());
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(uint64_t(rowsPad) * metadata.maxKVLength(),
                             uint64_t(heads) * sizeof(float), &bytes))
    return Error{ErrorCode::outOfMemory,
                 "out of memory: class temporaries: the score matrix of " +
                     std::to_string(heads) + " heads and " +
                     std::to_string(rowsPad) + " rows overflows 64 bits"};
  scoreBytes = bytes;
  if (bytes > score.size()) {
    score = Allocation();
    Result<Allocation> grown =
        allocator.allocate(MemoryClass::temporaries, bytes, "the score matrix");
    if (!grown)
      return grown.takeError();
    score = std::move(*grown);
  }
  if (!poison || bytes == 0)
    return {};
  DeviceMemory &memory = allocator.memory();
  if (Result<void> ok =
          memory.fill(score.address(), canaryPattern, score.size());
      !ok)
    return ok;
  return memory.fill(score.address(), nanPattern, bytes);
}

Result<void> Session::prepare(const Batch &batch) {
  uint32_t index = findSchedule(table, batch.numTokens());
  chosen = table.schedules()->Get(index);
  times.clear(); // they are another schedule's
  untimed = false;
  rowsPad = padRows(*chosen, batch.numTokens());
  logitRowsPad = padRows(*chosen, batch.numLogitRows());
  if (rowsPad > std::numeric_limits<int32_t>::max())
    return invalidArgument("a batch of " + std::to_string(batch.numTokens()) +
                           " tokens, expected less than 2^31 with padding");
  if (Result<void> ok =
          arena.prepare(*chosen, rowsPad, logitRowsPad, poison, allocator);
      !ok)
    return ok;
  for (int64_t i = 0; i < batch.numSequences(); ++i)
    cache.reserve(batch.sequences[i], cache.length(batch.sequences[i]) +
                                          batch.cuSeqlens[i + 1] -
                                          batch.cuSeqlens[i]);
  if (Result<void> ok = metadata.build(batch, cache, rowsPad, logitRowsPad,
                                       allocator, hostAllocator);
      !ok)
    return ok;
  if (Result<void> ok = prepareScore(); !ok)
    return ok;
  return stream->beginCall(
      {index, rowsPad, logitRowsPad, batch.numSequences()});
}

void Session::expandArguments(const module::Launch &launch) {
  words.clear();
  for (const module::Arg *arg : *launch.args()) {
    switch (arg->kind()) {
    case module::ArgKind::buffer:
      words.push_back(arena.buffer(arg->index()));
      break;
    case module::ArgKind::weight:
      words.push_back(weights.address(arg->index()));
      break;
    case module::ArgKind::batch:
      metadata.appendWords(words);
      break;
    case module::ArgKind::kv_cache: {
      const KVCacheLayout &layout = cache.layout();
      words.insert(words.end(),
                   {cache.keys(arg->index()), cache.values(arg->index()),
                    static_cast<uint64_t>(layout.blockStride),
                    static_cast<uint64_t>(layout.tokenStride),
                    static_cast<uint64_t>(layout.headStride)});
      break;
    }
    case module::ArgKind::score:
      words.push_back(score.address());
      words.push_back(static_cast<uint64_t>(metadata.maxKVLength()));
      break;
    }
  }
}

void Session::listRanges(const module::Launch &launch) {
  ranges.clear();
  if (!module.device().backend().wantsRanges())
    return;
  std::vector<bool> writable(launch.args()->size(), true);
  if (launch.read_only())
    for (uint32_t place : *launch.read_only())
      writable[place] = false;
  for (uint32_t place = 0; place < launch.args()->size(); ++place) {
    const module::Arg *arg = launch.args()->Get(place);
    uint32_t index = arg->index();
    switch (arg->kind()) {
    case module::ArgKind::buffer: {
      const module::Buffer &buffer = *chosen->buffers()->Get(index);
      ranges.push_back({arena.buffer(index), arena.bytes(buffer),
                        buffer.name()->str(), writable[place]});
      break;
    }
    case module::ArgKind::weight: {
      const module::Weight &weight = *table.weights()->Get(index);
      ranges.push_back({weights.address(index), byteSize(weight),
                        weight.name()->str(), /*writable=*/false});
      break;
    }
    case module::ArgKind::batch:
      metadata.appendRanges(ranges);
      break;
    case module::ArgKind::kv_cache:
      for (const KVCache::Part &part : cache.parts(index))
        ranges.push_back({part.address, part.bytes,
                          "layer" + std::to_string(index) + "." + part.name,
                          writable[place]});
      break;
    case module::ArgKind::score:
      ranges.push_back(
          {score.address(), scoreBytes, "scores", /*writable=*/true});
      break;
    }
  }
}

Result<void> Session::launch(uint32_t index, const Batch &batch) {
  const module::Launch &launch = *chosen->launches()->Get(index);
  expandArguments(launch);
  listRanges(launch);
  const module::Grid &grid = *table.kernels()->Get(launch.kernel())->grid();
  int64_t rows =
      grid.domain() == module::RowDomain::tokens ? rowsPad : logitRowsPad;
  int64_t workgroups = (rows + grid.block() - 1) / grid.block();
  // The row blocks of a gemm's columns read the same weights and lie side by
  // side.
  int64_t grain = grid.plus_sequences() ? 1 : workgroups;
  if (grid.plus_sequences())
    workgroups += batch.numSequences();
  workgroups *= grid.multiplier(); // < 2^32 * 2^28
  Result<void> done = stream->launch(
      {index, launch.kernel(), words, workgroups, grain, ranges});
  if (done)
    return done;
  Error error = done.takeError();
  error.message = describe(index) + ": " + error.message;
  return error;
}

std::string Session::describe(uint32_t launchIndex) const {
  return "launch " + std::to_string(launchIndex) + ", layer " +
         std::to_string(chosen->launches()->Get(launchIndex)->layer());
}

Result<void> Session::findDamage(uint32_t launchIndex) const {
  const module::Launch &launch = *chosen->launches()->Get(launchIndex);
  const module::Kernel &kernel = *table.kernels()->Get(launch.kernel());
  Result<std::string> damaged = arena.damage(*chosen);
  if (!damaged)
    return damaged.takeError();
  std::string where = *damaged;
  if (where.empty())
    where = stream->damage(kernel);
  if (where.empty() && scoreBytes < score.size()) {
    std::vector<std::byte> behind(score.size() - scoreBytes);
    if (Result<void> ok = allocator.memory().download(
            behind.data(), score.address() + scoreBytes, behind.size());
        !ok)
      return ok;
    if (std::any_of(behind.begin(), behind.end(),
                    [](std::byte b) { return b != std::byte(canaryPattern); }))
      where = "behind the score matrix";
  }
  if (where.empty() && !score.guardIntact())
    where = "behind the score matrix";
  if (where.empty() && !cache.guardIntact())
    where = "behind the KV cache";
  if (where.empty() && !metadata.guardIntact())
    where = "behind the batch metadata";
  if (int64_t weight = weights.damagedWeight(); where.empty() && weight >= 0)
    where =
        "behind weight " + quote(table.weights()->Get(weight)->name()->str());
  if (where.empty())
    return {};
  return invalidModule("kernel " + quote(kernel.name()->string_view()) + " (" +
                       describe(launchIndex) + ") wrote " + where);
}

Result<void> Session::downloadLogits(float *logits, int64_t rows) const {
  const uint32_t buffer = chosen->logits_buffer();
  const int64_t vocabSize = module.file().vocab_size();
  const int64_t rowBytes = chosen->buffers()->Get(buffer)->row_bytes();
  DeviceMemory &memory = allocator.memory();
  if (rowBytes == vocabSize * int64_t(sizeof(float)))
    return memory.download(logits, arena.buffer(buffer), rows * rowBytes);
  for (int64_t row = 0; row < rows; ++row)
    if (Result<void> ok = memory.download(logits + row * vocabSize,
                                          arena.buffer(buffer) + row * rowBytes,
                                          vocabSize * sizeof(float));
        !ok)
      return ok;
  return {};
}

uint64_t Session::countFlops(const Batch &batch) const {
  const module::Module &file = module.file();
  uint64_t pairs = 0, logitPairs = 0;
  uint64_t window = file.sliding_window();
  for (int64_t i = 0; i < batch.numSequences(); ++i) {
    uint64_t past = cache.length(batch.sequences[i]);
    uint64_t count = batch.cuSeqlens[i + 1] - batch.cuSeqlens[i];
    // Query j sees past + j + 1 keys, at most `window` of them.
    if (window == 0 || past + count <= window) {
      pairs += count * past + count * (count + 1) / 2;
    } else {
      for (uint64_t j = 0; j < count; ++j)
        pairs += std::min(past + j + 1, window);
    }
    logitPairs += window == 0 ? past + count : std::min(past + count, window);
  }
  if (batch.allLogits)
    logitPairs = pairs;
  return uint64_t(file.flops_per_token()) * batch.numTokens() +
         uint64_t(file.flops_per_logit_row()) * batch.numLogitRows() +
         uint64_t(file.attention_flops_per_pair()) * pairs +
         uint64_t(file.attention_flops_per_logit_pair()) * logitPairs;
}

Result<void> Session::run(const int32_t *tokens, const int32_t *cuSeqlens,
                          const int32_t *sequences, int64_t numSequences,
                          bool allLogits, float *logits) {
  using Clock = std::chrono::steady_clock;
  staged.reset(); // the layout is this call's from here on
  Clock::time_point start = Clock::now();
  auto sinceStart = [&] {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() -
                                                             start)
            .count());
  };
  Result<Batch> batch =
      check(tokens, cuSeqlens, sequences, numSequences, allLogits, logits);
  if (!batch)
    return batch.takeError();
  if (Result<void> ok = prepare(*batch); !ok)
    return ok;

  for (uint32_t i = 0; i < chosen->launches()->size(); ++i) {
    uint64_t begin = sinceStart();
    if (Result<void> ok = launch(i, *batch); !ok)
      return ok;
    times.push_back({begin, sinceStart() - begin});
    if (!poison)
      continue;
    if (Result<void> ok = stream->synchronize(); !ok)
      return ok;
    if (Result<void> ok = findDamage(i); !ok)
      return ok;
    if (Result<void> ok = arena.poisonPaddedRows(*chosen, batch->numTokens(),
                                                 batch->numLogitRows());
        !ok)
      return ok;
  }
  if (Result<void> ok = stream->endCall(); !ok)
    return ok;
  if (std::optional<std::vector<LaunchTime>> measured = stream->launchTimes())
    times = std::move(*measured);

  if (Result<void> ok = downloadLogits(logits, batch->numLogitRows()); !ok)
    return ok;
  lastFlops = countFlops(*batch);
  untimed = times.empty();
  for (int64_t i = 0; i < numSequences; ++i)
    cache.setLength(sequences[i], cache.length(sequences[i]) +
                                      cuSeqlens[i + 1] - cuSeqlens[i]);
  return {};
}

Result<void> Session::stage(const int32_t *tokens, const int32_t *cuSeqlens,
                            const int32_t *sequences, int64_t numSequences) {
  staged.reset();
  float unused = 0; // only run() writes logits
  Result<Batch> batch =
      check(tokens, cuSeqlens, sequences, numSequences, false, &unused);
  if (!batch)
    return batch.takeError();
  if (Result<void> ok = prepare(*batch); !ok)
    return ok;
  staged = std::move(*batch);
  staged->tokens = nullptr; // the metadata has them; the caller's may be gone
  return {};
}

Result<void> Session::runStaged(uint32_t index) {
  assert(staged && "stage() comes first");
  if (Result<void> ok = launch(index, *staged); !ok)
    return ok;
  return stream->synchronize();
}

uint64_t Session::memory(MemoryClass memoryClass) const {
  switch (memoryClass) {
  case MemoryClass::weights:
    return weights.bytes();
  case MemoryClass::kvCache:
    return cache.bytes();
  case MemoryClass::activationPeak:
  case MemoryClass::temporaries:
    break;
  }
  return allocator.peak(memoryClass) + hostAllocator.peak(memoryClass);
}

void Session::setPoison(bool enabled) {
  poison = enabled;
  staged.reset();
  // What a mode has laid out means nothing to the other.
  arena = ActivationArena();
  score = Allocation();
  stream->setPoison(enabled);
  times.clear();
  untimed = false;
}
